#include "cli/status/status_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "cache/ids.h"
#include "cli/status/refused_most.h"
#include "cli/terminal/accounts.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "config/sampling/sampling_numbers.h"

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

// "42.1 MiB resident (at most 43.0 MiB): weights 2.02 MiB, ...", the largest first; kinds under 1 % are summed up.
std::string memory_line(const client::ServerStatus& s) {
  const std::uint64_t resident = s.count("resident_bytes");
  std::string line =
      fmt::format("{} resident (at most {}): ", human_bytes(resident), human_bytes(s.count("peak_resident_bytes")));
  std::uint64_t rest = 0;
  for (const client::MemoryUse& use : largest_first(s.memory)) {
    if (use.bytes * 100 < resident)
      rest += use.bytes;
    else
      line += fmt::format("{} {}, ", use.kind, human_bytes(use.bytes));
  }
  return line + "other " + human_bytes(rest);
}

// "ready; 1 waiting, 2 running, 0 parked; 120 tokens of prompts, 55 generated; 2.02 MiB resident"; of a model that is
// not loaded, or for a guest, its state alone.
std::string model_line(const client::ServerStatus& s, std::size_t index) {
  std::string line = state_of(s.health.models[index]);
  if (index >= s.models.size() || s.own_only) return line;
  const client::ServerStatus::ModelUse& use = s.models[index];  // in the order of the health: names may be there twice
  if (use.numerics_id.empty()) return line;
  std::uint64_t resident = 0;
  for (const client::MemoryUse& memory : use.memory) resident += memory.bytes;
  return line + fmt::format("; {} waiting, {} running, {} parked; {} tokens of prompts, {} generated; {} resident",
                            use.requests_waiting, use.requests_running, use.requests_parked, use.prompt_tokens,
                            use.generated_tokens, human_bytes(resident));
}

std::vector<std::pair<std::string, std::string>> lines_of(const client::ServerStatus& s) {
  const auto count = [&](std::string_view key) { return s.count(key); };
  std::vector<std::string> ended;
  for (const auto& [outcome, count] : s.requests_ended)
    if (count > 0) ended.push_back(fmt::format("{} {}", outcome, count));
  const bool is_loading = s.health.readiness == client::Readiness::loading;
  const double prompt = s.value("prompt_tokens");
  std::vector<std::pair<std::string, std::string>> lines{
      {"health", name_of(s.health) + (is_loading ? fmt::format(" ({:.0f} %)", 100 * s.health.load_fraction) : "")},
      {"server", fmt::format("{}, up {:.0f} s", s.server, s.value("uptime_seconds"))},
      {"model", s.model + (s.numerics_id.empty() ? "" : fmt::format(" ({})", s.numerics_id))},
      {"compute", fmt::format("{}{} threads", s.kernels.empty() ? "" : s.kernels + ", ", s.num_threads)},
      {"budgeted", fmt::format("weights {}, KV cache up to {}", human_bytes(s.weight_bytes), human_bytes(s.kv_bytes))},
      {"requests", fmt::format("{} waiting, {} running, {} parked, {} received{}", count("requests_waiting"),
                               count("requests_running"), count("requests_parked"), count("requests_received"),
                               s.own_only ? " (yours)" : "")},
      {"ended", ended.empty() ? "none" : fmt::format("{}", fmt::join(ended, ", "))},
      {"tokens",
       fmt::format("{} of prompts ({} cached, {:.1f} %), {} generated", count("prompt_tokens"), count("cached_tokens"),
                   prompt > 0 ? 100 * s.value("cached_tokens") / prompt : 0, count("generated_tokens"))},
  };
  if (const std::string refused = refused_text(s, user_name); !refused.empty()) lines.emplace_back("refused", refused);
  const bool any_failed = std::any_of(s.health.models.begin(), s.health.models.end(),
                                      [](const auto& model) { return !model.problem.empty(); });
  if (s.health.models.size() > 1 || any_failed)
    for (std::size_t i = 0; i < s.health.models.size(); ++i)
      lines.emplace_back("model " + s.health.models[i].name, model_line(s, i));
  if (s.own_only) return lines;  // the server sends no more to a guest
  if (count("models_on_request") > 0)
    lines.emplace_back(
        "on request",
        fmt::format(
            "{} of {} models in memory, {} requests wait; {} loads of {:.1f} s ({} failed), loading {:.0f} % of "
            "the last minutes",
            count("models_on_request_loaded"), count("models_on_request"), count("model_load_waiting"),
            count("model_loads_on_request"),
            s.value("model_load_on_request_seconds") /
                static_cast<double>(std::max<std::uint64_t>(
                    count("model_loads_on_request") + count("model_loads_on_request_failed"), 1)),
            count("model_loads_on_request_failed"), 100 * s.value("model_loading_share")));
  lines.emplace_back("memory", memory_line(s));
  lines.emplace_back("connections", fmt::format("{} open with {} streams; {} accepted, {} refused, {} broken",
                                                count("connections"), count("streams"), count("connections_accepted"),
                                                count("connections_refused"), count("connections_broken")));
  lines.emplace_back("steps",
                     fmt::format("{}, {:.2f} ms each, last {:.1f} s ago; {} preemptions, {} restarts", count("steps"),
                                 count("steps") ? 1e3 * s.value("step_seconds") / s.value("steps") : 0,
                                 s.value("last_step_age_seconds"), count("preemptions"), count("worker_restarts")));
  lines.emplace_back("latency",
                     fmt::format("first token {}, next {}, wait for the first step {}, whole answer {} (p50 / "
                                 "p99 of the last minute or two)",
                                 recent_latency(s, "time_to_first_token"), recent_latency(s, "inter_token_latency"),
                                 recent_latency(s, "request_queue_time"), recent_latency(s, "e2e_request_latency")));
  lines.emplace_back("blocks",
                     fmt::format("{} of {} tokens: {} free, {} cached, {} in use; {} published, {} evicted",
                                 count("blocks_total"), kBlockSize, count("blocks_free"), count("blocks_cached"),
                                 count("blocks_referenced"), count("prefix_blocks_computed"), count("evictions")));
  if (count("window_blocks_total") > 0)
    lines.emplace_back(
        "windows", fmt::format("{} blocks of layers with a window: {} free, {} cached, {} in use; {} evicted",
                               count("window_blocks_total"), count("window_blocks_free"), count("window_blocks_cached"),
                               count("window_blocks_referenced"), count("window_block_evictions")));
  for (const char* drafter : {"ngram", "suffix", "draft", "request"}) {
    const auto counted = [&](const char* what) { return count(fmt::format("spec_decode_num_{}_{}", what, drafter)); };
    const auto tokens = counted("draft_tokens");
    if (tokens == 0) continue;
    lines.emplace_back(
        fmt::format("drafts ({})", drafter),
        fmt::format("{} of {} tokens; {} accepted ({:.1f} %), each without a step of its own", counted("drafts"),
                    tokens, counted("accepted_tokens"),
                    100.0 * static_cast<double>(counted("accepted_tokens")) / static_cast<double>(tokens)));
  }
  if (count("snapshots_total") > 0)
    lines.emplace_back("snapshots",
                       fmt::format("{} of recurrent state: {} cached; {} hits, {} evicted", count("snapshots_total"),
                                   count("snapshots_cached"), count("snapshot_hits"), count("snapshot_evictions")));
  return lines;
}

// `kv_blocks{state="free"}` and its value.
std::pair<std::string, std::string> line_of(const Metric& metric) {
  std::vector<std::string> labels;
  for (const auto& [label, value] : metric.labels) labels.push_back(fmt::format("{}=\"{}\"", label, value));
  std::string value = number(metric.value).dump();
  if (metric.kind == MetricKind::histogram)
    value =
        fmt::format("{} in {} s", std::accumulate(metric.counts.begin(), metric.counts.end(), std::uint64_t{0}), value);
  return {labels.empty() ? metric.name : fmt::format("{}{{{}}}", metric.name, fmt::join(labels, ",")),
          fmt::format("{}  {}", value, metric.help)};
}

}  // namespace

ordered_json defaults_json(const client::ModelDefaults& defaults) {
  ordered_json json = ordered_json::object();
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) {
        if (value) json[std::string(number.name)] = *value;
      },
      defaults);
  if (!defaults.reasoning.empty()) json["reasoning"] = defaults.reasoning;
  if (defaults.reasoning_budget) json["reasoning_budget"] = *defaults.reasoning_budget;
  if (!defaults.system.empty()) json["system"] = defaults.system;
  return json;
}

ordered_json description_json(const client::ModelDescription& m) {
  return {{"name", m.name},
          {"aliases", m.aliases},
          {"family", m.family},
          {"weight_types", m.weight_types},
          {"num_parameters", m.num_parameters},
          {"context", m.context},
          {"trained_context", m.trained_context},
          {"vocab_size", m.vocab_size},
          {"end_ids", m.end_ids},
          {"chat_template", m.chat_template},
          {"tool_format", m.tool_format},
          {"kv_bytes_per_token", m.kv_bytes_per_token},
          {"defaults", defaults_json(m.defaults)},
          {"numerics_id", m.numerics_id}};
}

ordered_json health_json(const client::ServerStatus& s) {
  ordered_json health = ordered_json::array();
  for (const client::Health::Model& m : s.health.models)
    health.push_back({{"name", m.name},
                      {"aliases", m.aliases},
                      {"readiness", name_of(client::Health{.readiness = m.readiness, .stalled = m.stalled})},
                      {"load_fraction", m.load_fraction},
                      {"problem", m.problem},
                      {"replacing", m.replacing},
                      {"retiring", m.retiring},
                      {"on_request", m.on_request}});
  return health;
}

ordered_json use_json(const client::ServerStatus& s) {
  ordered_json used = ordered_json::array();
  for (const client::ServerStatus::ModelUse& m : s.models) {
    ordered_json resident = ordered_json::object();
    for (const client::MemoryUse& use : m.memory) resident[use.kind] = use.bytes;
    used.push_back({{"name", m.name},
                    {"numerics_id", m.numerics_id},
                    {"kernels", m.kernels},
                    {"weight_bytes", m.weight_bytes},
                    {"kv_bytes", m.kv_bytes},
                    {"requests_waiting", m.requests_waiting},
                    {"requests_running", m.requests_running},
                    {"requests_parked", m.requests_parked},
                    {"prompt_tokens", m.prompt_tokens},
                    {"cached_tokens", m.cached_tokens},
                    {"generated_tokens", m.generated_tokens},
                    {"memory", resident}});
  }
  return used;
}

ordered_json refused_json(const client::ServerStatus& s) {
  ordered_json refused = ordered_json::array();
  for (const RefusedTenant& each : refused_most(s)) {
    ordered_json reasons = ordered_json::object();
    for (const auto& [reason, count] : each.reasons) reasons[reason] = count;
    refused.push_back({{"tenant", each.tenant},
                       {"refused", each.refused},
                       {"received", each.received},
                       {"reasons", std::move(reasons)}});
  }
  return refused;
}

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
    if (metric.kind == MetricKind::histogram && !metric.key.empty())
      histograms[metric.name] = {{"counts", metric.counts}, {"sum_seconds", metric.value}};
  }
  ordered_json described = ordered_json::array();
  for (const client::ModelDescription& m : models) described.push_back(description_json(m));
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
                      {"refused_most", refused_json(s)},
                      {"histogram_bounds", s.histogram_bounds},
                      {"histograms", histograms},
                      {"models", described},
                      {"model_health", health_json(s)},
                      {"model_use", use_json(s)},
                      {"metrics", metrics}};
  for (const Metric& metric : s.metrics)
    if (!metric.key.empty() && metric.kind != MetricKind::histogram) report.emplace(metric.key, number(metric.value));
  return report;
}

std::string recent_latency(const client::ServerStatus& s, const std::string& name) {
  const auto text = [&](const char* ending) -> std::string {
    const Metric* const metric = s.metrics.find(name + ending);
    if (!metric) return "-";
    return fmt::format("{:.{}f} ms", 1e3 * metric->value, metric->value < 0.01 ? 2 : 0);
  };
  return text("_p50") + " / " + text("_p99");
}

std::string prediction_text(const client::ServerStatus& s) {
  const double steps = s.value("steps");
  const auto ms_per_step = [&](std::string_view key) { return steps > 0 ? 1e3 * s.value(key) / steps : 0; };
  return fmt::format(
      "cost model: steps were predicted to take {:.3f} ms on average; of the last ones, half were at most {:.1f} % off "
      "and 95 % at most {:.1f} %. While answers run, prompts are cut so that a step takes {:.0f} ms (--max-stall)\n",
      ms_per_step("step_predicted_seconds"), 100 * s.value("step_prediction_error_p50"),
      100 * s.value("step_prediction_error_p95"), 1e3 * s.value("max_stall_seconds"));
}

Color color_of(const client::Health& health) {
  if (health.stalled || health.readiness == client::Readiness::failed) return Color::red;
  return health.readiness == client::Readiness::ready ? Color::green : Color::yellow;
}

std::string status_text(const client::ServerStatus& s, bool verbose) {
  std::string text = aligned(lines_of(s));
  if (!verbose) return text;
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Metric& metric : s.metrics) lines.push_back(line_of(metric));
  return text + "\n" + aligned(lines);
}

}  // namespace troupe::cli
