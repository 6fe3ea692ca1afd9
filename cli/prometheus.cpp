#include "cli/prometheus.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

#include "config/printable.h"
#include "scheduler/outcome.h"

namespace troupe::cli {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Labels = std::vector<std::pair<std::string, std::string>>;

// Collects metric families in the order in which they are first added.
class Families {
 public:
  explicit Families(const std::string& model) : model_(label(model)) {}

  void gauge(const std::string& name, const std::string& help, double value, const Labels& labels = {}) {
    add(name, help, MetricType::Gauge, labels).gauge.value = value;
  }
  template <class Count>
  void counter(const std::string& name, const std::string& help, Count value, const Labels& labels = {}) {
    add(name + "_total", help, MetricType::Counter, labels).counter.value = static_cast<double>(value);
  }
  void histogram(const std::vector<double>& bounds, const client::LatencyHistogram& histogram) {
    ClientMetric::Histogram& out =
        add(label(histogram.name) + "_seconds", help_of(histogram.name), MetricType::Histogram, {}).histogram;
    out.sample_sum = histogram.sum_seconds;
    for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
      out.sample_count += histogram.counts[i];
      if (i < bounds.size()) out.bucket.push_back({out.sample_count, bounds[i]});  // the serializer adds +Inf
    }
  }

  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  // A label's value; it may come from a model file or a server, so it is made printable.
  static std::string label(const std::string& text) { return Printable(text, kMaxModelNameBytes).text(); }

  static std::string help_of(const std::string& histogram) {
    std::string words = label(histogram);
    for (char& c : words)
      if (c == '_') c = ' ';
    return "Histogram of " + words + " in seconds.";
  }

  ClientMetric& add(const std::string& name, const std::string& help, MetricType type, const Labels& labels) {
    const std::string full = "troupe:" + name;
    if (families_.empty() || families_.back().name != full) families_.push_back({full, help, type, {}});
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label.push_back({"model_name", model_});
    for (const auto& [key, value] : labels) metric.label.push_back({key, label(value)});
    return metric;
  }

  std::string model_;
  std::vector<MetricFamily> families_;
};

void add_requests(const client::ServerStatus& s, Families& out) {
  out.gauge("num_requests_running", "Requests that take part in steps.", static_cast<double>(s.requests_running));
  out.gauge("num_requests_waiting", "Requests that wait for their first step.",
            static_cast<double>(s.requests_waiting));
  out.gauge("num_requests_parked", "Requests whose client does not read.", static_cast<double>(s.requests_parked));
  out.counter("requests_received", "Requests, admitted or not.", s.requests_received);
  // One family after the other: the text format requires the samples of a family to be together.
  for (const bool success : {true, false}) {
    for (const scheduler::OutcomeInfo& outcome : scheduler::outcomes()) {
      if ((outcome.kind == scheduler::OutcomeKind::done) != success) continue;
      std::uint64_t count = 0;
      for (const auto& [name, ended] : s.requests_ended)
        if (name == outcome.name) count = ended;
      if (success) {
        out.counter("request_success", "Answers that ended as asked, by how.", count,
                    {{"finished_reason", std::string(outcome.name)}});
      } else {
        const bool refused = outcome.kind == scheduler::OutcomeKind::refused;
        out.counter("request_failure", "Requests that were refused or failed, by why.", count,
                    {{"kind", refused ? "refused" : "failed"}, {"reason", std::string(outcome.name)}});
      }
    }
  }
}

// Requests by kind; Generate and Embed are also counted in request_success and request_failure.
void add_kinds(const client::ServerStatus& s, Families& out) {
  for (const client::ServerStatus::Kind& kind : s.kinds)
    for (const auto& [outcome, count] : kind.ended)
      out.counter("frames", "Frames that asked for something, by kind and how they ended.", count,
                  {{"kind", kind.kind}, {"outcome", outcome}});
}

void add_tokens(const client::ServerStatus& s, Families& out) {
  out.counter("prompt_tokens", "Tokens of prompts that were begun.", s.prompt_tokens);
  out.counter("generation_tokens", "Tokens that were generated.", s.generated_tokens);
  out.counter("prefix_cache_queries", "Prompt tokens that were looked for in the prefix cache.", s.prompt_tokens);
  out.counter("prefix_cache_hits", "Prompt tokens that were found there.", s.cached_tokens);
}

void add_steps(const client::ServerStatus& s, Families& out) {
  out.counter("num_preemptions", "Sequences that gave way to older ones.", s.preemptions);
  out.counter("steps", "Passes over a batch.", s.steps);
  out.gauge("last_step_age_seconds", "Since the last progress, while there is work.", s.last_step_age_seconds);
  out.counter("worker_restarts", "Actors that died and were started again.", s.worker_restarts);
}

// Only for models with window layers or recurrent state; other models get no such lines.
void add_windows_and_snapshots(const client::ServerStatus& s, Families& out) {
  if (s.window_blocks_total > 0) {
    const std::pair<const char*, std::uint32_t> blocks[] = {
        {"free", s.window_blocks_free}, {"cached", s.window_blocks_cached}, {"referenced", s.window_blocks_referenced}};
    for (const auto& [state, count] : blocks) {
      out.gauge("kv_window_blocks", "KV blocks of layers with a window; one can be cached and referenced at once.",
                count, {{"state", state}});
    }
    out.gauge("kv_window_blocks_capacity", "KV blocks of layers with a window there are.", s.window_blocks_total);
    out.counter("kv_window_block_evictions", "Of those, dropped from the prefix cache.", s.window_block_evictions);
  }
  if (s.snapshots_total > 0) {
    out.gauge("state_snapshots", "Snapshots of recurrent state in the prefix cache.", s.snapshots_cached);
    out.gauge("state_snapshots_capacity", "Snapshots of recurrent state there is room for.", s.snapshots_total);
    out.counter("state_snapshot_hits", "Sequences that went on from a snapshot.", s.snapshot_hits);
    out.counter("state_snapshot_evictions", "Snapshots that were dropped from the prefix cache.", s.snapshot_evictions);
  }
}

void add_memory(const client::ServerStatus& s, Families& out) {
  const double total = s.blocks_total;
  out.gauge("kv_cache_usage_perc", "Share of the KV blocks held by sequences, 0 to 1.",
            total > 0 ? s.blocks_referenced / total : 0);
  const std::pair<const char*, std::uint32_t> blocks[] = {
      {"free", s.blocks_free}, {"cached", s.blocks_cached}, {"referenced", s.blocks_referenced}};
  for (const auto& [state, count] : blocks) {
    out.gauge("kv_blocks", "KV blocks; a block can be cached and referenced at once.", count, {{"state", state}});
  }
  out.gauge("kv_blocks_capacity", "KV blocks there are.", total);
  out.counter("prefix_blocks_computed", "Blocks that were published to the prefix cache.", s.prefix_blocks_computed);
  out.counter("kv_block_evictions", "Blocks that were dropped from the prefix cache.", s.evictions);
  add_windows_and_snapshots(s, out);
  for (const client::MemoryUse& use : s.memory) {
    out.gauge("memory_bytes", "Resident memory by kind.", static_cast<double>(use.bytes), {{"kind", use.kind}});
  }
  for (const client::MemoryUse& use : s.memory) {
    out.gauge("memory_peak_bytes", "The most so far.", static_cast<double>(use.peak_bytes), {{"kind", use.kind}});
  }
  out.gauge("resident_memory_bytes", "Resident memory of the server.", static_cast<double>(s.resident_bytes));
  out.gauge("resident_memory_peak_bytes", "The most so far.", static_cast<double>(s.peak_resident_bytes));
}

void add_server(const client::ServerStatus& s, Families& out) {
  out.gauge("build_info", "1, with the version as a label.", 1, {{"version", s.server}, {"kernels", s.kernels}});
  out.gauge("ready", "1 while requests are served.", s.health.readiness == client::Readiness::ready ? 1 : 0);
  out.gauge("stalled", "1 while requests wait and no step ends.", s.health.stalled ? 1 : 0);
  out.gauge("uptime_seconds", "Since the start.", s.uptime_seconds);
}

void add_connections(const client::ServerStatus& s, Families& out) {
  out.gauge("num_connections", "Open connections.", s.connections);
  out.gauge("num_streams", "Open streams on all connections.", s.streams);
  const std::pair<const char*, std::uint64_t> connections[] = {
      {"accepted", s.connections_accepted}, {"refused", s.connections_refused}, {"broken", s.connections_broken}};
  for (const auto& [result, count] : connections) {
    out.counter("connections", "Connections by what became of them.", count, {{"result", result}});
  }
}

}  // namespace

std::string to_prometheus(const client::ServerStatus& status) {
  Families families(status.model);
  add_server(status, families);
  if (!status.own_only) add_connections(status, families);
  add_requests(status, families);
  add_kinds(status, families);
  add_tokens(status, families);
  if (status.own_only) return families.text();  // the server sends no more to a guest
  add_steps(status, families);
  add_memory(status, families);
  for (const client::LatencyHistogram& histogram : status.histograms) {
    families.histogram(status.histogram_bounds, histogram);
  }
  return families.text();
}

}  // namespace troupe::cli
