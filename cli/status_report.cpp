#include "cli/status_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>

#include "cache/ids.h"
#include "cli/text.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

// Whole numbers without a fraction, as counters have them.
ordered_json number(double value) {
  if (value == std::trunc(value) && std::abs(value) < 0x1p53) return static_cast<std::int64_t>(value);
  return value;
}

ordered_json to_json(const Metric& metric) {
  constexpr const char* kKinds[] = {"counter", "gauge", "histogram"};
  ordered_json labels = ordered_json::object();
  for (const auto& [name, value] : metric.labels) labels[name] = value;
  ordered_json out{{"name", metric.name},
                   {"kind", kKinds[static_cast<std::size_t>(metric.kind)]},
                   {"help", metric.help},
                   {"labels", labels},
                   {"value", number(metric.value)}};
  if (metric.kind == MetricKind::histogram) out["counts"] = metric.counts;
  return out;
}

std::string percent(double part, double whole) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", whole > 0 ? 100 * part / whole : 0.0);
  return text;
}

// "42.1 MiB resident, 43.0 at most: weights 2.02 MiB, ...", the largest first; kinds under 1 % are summed up.
std::string memory_line(const client::ServerStatus& s) {
  std::vector<client::MemoryUse> uses = s.memory;
  std::stable_sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string line = human_bytes(s.count("resident_bytes")) + " resident (at most " +
                     human_bytes(s.count("peak_resident_bytes")) + "): ";
  std::uint64_t rest = 0;
  for (const client::MemoryUse& use : uses) {
    if (use.bytes * 100 < s.count("resident_bytes")) {
      rest += use.bytes;
    } else {
      line += use.kind + " " + human_bytes(use.bytes) + ", ";
    }
  }
  return line + "other " + human_bytes(rest);
}

std::vector<std::pair<std::string, std::string>> lines_of(const client::ServerStatus& s) {
  using std::to_string;
  const auto count = [&](std::string_view key) { return to_string(s.count(key)); };
  std::string ended;
  for (const auto& [outcome, count] : s.requests_ended)
    if (count > 0) ended += (ended.empty() ? "" : ", ") + outcome + " " + to_string(count);
  const std::string loaded = s.health.readiness == client::Readiness::loading
                                 ? " (" + fixed(100 * s.health.load_fraction, 0) + " %)"
                                 : std::string();
  std::vector<std::pair<std::string, std::string>> lines{
      {"health", name_of(s.health) + loaded},
      {"server", s.server + ", up " + fixed(s.value("uptime_seconds"), 0) + " s"},
      {"model", s.model + (s.numerics_id.empty() ? "" : " (" + s.numerics_id + ")")},
      {"compute", s.kernels + ", " + to_string(s.num_threads) + " threads"},
      {"budgeted", "weights " + human_bytes(s.weight_bytes) + ", KV cache up to " + human_bytes(s.kv_bytes)},
      {"requests", count("requests_waiting") + " waiting, " + count("requests_running") + " running, " +
                       count("requests_parked") + " parked, " + count("requests_received") + " received" +
                       (s.own_only ? " (yours)" : "")},
      {"ended", ended.empty() ? "none" : ended},
      {"tokens", count("prompt_tokens") + " of prompts (" + count("cached_tokens") + " cached, " +
                     percent(s.value("cached_tokens"), s.value("prompt_tokens")) + "), " + count("generated_tokens") +
                     " generated"},
  };
  if (s.own_only) return lines;  // the server sends no more to a guest
  const std::vector<std::pair<std::string, std::string>> of_all{
      {"memory", memory_line(s)},
      {"connections", count("connections") + " open with " + count("streams") + " streams; " +
                          count("connections_accepted") + " accepted, " + count("connections_refused") + " refused, " +
                          count("connections_broken") + " broken"},
      {"steps", count("steps") + ", " +
                    fixed(s.count("steps") ? 1e3 * s.value("step_seconds") / s.value("steps") : 0, 2) +
                    " ms each, last " + fixed(s.value("last_step_age_seconds"), 1) + " s ago; " + count("preemptions") +
                    " preemptions, " + count("worker_restarts") + " restarts"},
      {"blocks", count("blocks_total") + " of " + to_string(kBlockSize) + " tokens: " + count("blocks_free") +
                     " free, " + count("blocks_cached") + " cached, " + count("blocks_referenced") + " in use; " +
                     count("prefix_blocks_computed") + " published, " + count("evictions") + " evicted"},
  };
  lines.insert(lines.end(), of_all.begin(), of_all.end());
  if (s.count("window_blocks_total") > 0)
    lines.emplace_back("windows", count("window_blocks_total") +
                                      " blocks of layers with a window: " + count("window_blocks_free") + " free, " +
                                      count("window_blocks_cached") + " cached, " + count("window_blocks_referenced") +
                                      " in use; " + count("window_block_evictions") + " evicted");
  if (s.count("snapshots_total") > 0)
    lines.emplace_back("snapshots", count("snapshots_total") + " of recurrent state: " + count("snapshots_cached") +
                                        " cached; " + count("snapshot_hits") + " hits, " + count("snapshot_evictions") +
                                        " evicted");
  return lines;
}

// `kv_blocks{state="free"}` and its value.
std::pair<std::string, std::string> line_of(const Metric& metric) {
  std::string name = metric.name, labels;
  for (const auto& [label, value] : metric.labels) labels += (labels.empty() ? "" : ",") + label + "=\"" + value + "\"";
  if (!labels.empty()) name += "{" + labels + "}";
  std::string value = number(metric.value).dump();
  if (metric.kind == MetricKind::histogram)
    value = std::to_string(std::accumulate(metric.counts.begin(), metric.counts.end(), std::uint64_t{0})) + " in " +
            value + " s";
  return {name, value + "  " + metric.help};
}

}  // namespace

nlohmann::ordered_json status_json(const client::ServerStatus& s, const std::vector<client::ModelDescription>& models) {
  ordered_json ended = ordered_json::object();
  for (const auto& [outcome, count] : s.requests_ended) ended[outcome] = count;
  ordered_json kinds = ordered_json::object();
  for (const client::ServerStatus::Kind& kind : s.kinds) {
    ordered_json& ends = kinds[kind.kind] = {{"received", kind.received}, {"ended", ordered_json::object()}};
    for (const auto& [outcome, count] : kind.ended) ends["ended"][outcome] = count;
  }
  ordered_json memory = ordered_json::object();
  for (const client::MemoryUse& use : s.memory)
    memory[use.kind] = {{"bytes", use.bytes}, {"peak_bytes", use.peak_bytes}};
  ordered_json metrics = ordered_json::array(), histograms = ordered_json::object();
  for (const Metric& metric : s.metrics) {
    metrics.push_back(to_json(metric));
    if (metric.kind == MetricKind::histogram)
      histograms[metric.name] = {{"counts", metric.counts}, {"sum_seconds", metric.value}};
  }
  ordered_json described = ordered_json::array();
  for (const client::ModelDescription& m : models)
    described.push_back({{"name", m.name},
                         {"family", m.family},
                         {"weight_types", m.weight_types},
                         {"num_parameters", m.num_parameters},
                         {"context", m.context},
                         {"trained_context", m.trained_context},
                         {"vocab_size", m.vocab_size},
                         {"end_ids", m.end_ids},
                         {"kv_bytes_per_token", m.kv_bytes_per_token},
                         {"numerics_id", m.numerics_id}});
  ordered_json report{{"readiness", name_of(s.health)},
                      {"load_fraction", s.health.load_fraction},
                      {"server", s.server},
                      {"model", s.model},
                      {"numerics_id", s.numerics_id},
                      {"kernels", s.kernels},
                      {"num_threads", s.num_threads},
                      {"requests_ended", ended},
                      {"kinds", kinds},
                      {"own_only", s.own_only},
                      {"weight_bytes", s.weight_bytes},
                      {"kv_bytes", s.kv_bytes},
                      {"memory", memory},
                      {"histogram_bounds", s.histogram_bounds},
                      {"histograms", histograms},
                      {"models", described},
                      {"metrics", metrics}};
  for (const Metric& metric : s.metrics)
    if (!metric.key.empty() && metric.kind != MetricKind::histogram) report.emplace(metric.key, number(metric.value));
  return report;
}

std::string status_text(const client::ServerStatus& s, bool verbose) {
  std::string text = aligned(lines_of(s));
  if (!verbose) return text;
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Metric& metric : s.metrics) lines.push_back(line_of(metric));
  return text + "\n" + aligned(lines);
}

}  // namespace troupe::cli
