// troupe status: prints the server's status.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cache/ids.h"
#include "cli/connect.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/profile_report.h"
#include "cli/prometheus.h"
#include "cli/subcommands.h"
#include "cli/text.h"
#include "config/printable.h"
#include "ipc/client/client.h"

namespace troupe::cli {
namespace {

int exit_code_of(const client::Health& health) {
  if (health.stalled || health.readiness == client::Readiness::failed) return kExitFailure;
  return health.readiness == client::Readiness::ready ? kExitOk : kExitRefusedForLoad;
}

// Every counter, under its name in client::ServerStatus.
nlohmann::ordered_json to_json(const client::ServerStatus& s, const std::vector<client::ModelDescription>& models) {
  using nlohmann::ordered_json;
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
  ordered_json histograms = ordered_json::object();
  for (const client::LatencyHistogram& histogram : s.histograms)
    histograms[histogram.name] = {{"counts", histogram.counts}, {"sum_seconds", histogram.sum_seconds}};
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
  return {{"readiness", name_of(s.health)},
          {"load_fraction", s.health.load_fraction},
          {"server", s.server},
          {"model", s.model},
          {"numerics_id", s.numerics_id},
          {"kernels", s.kernels},
          {"num_threads", s.num_threads},
          {"uptime_seconds", s.uptime_seconds},
          {"requests_received", s.requests_received},
          {"requests_waiting", s.requests_waiting},
          {"requests_running", s.requests_running},
          {"requests_parked", s.requests_parked},
          {"requests_ended", ended},
          {"kinds", kinds},
          {"own_only", s.own_only},
          {"prompt_tokens", s.prompt_tokens},
          {"cached_tokens", s.cached_tokens},
          {"generated_tokens", s.generated_tokens},
          {"preemptions", s.preemptions},
          {"steps", s.steps},
          {"step_seconds", s.step_seconds},
          {"last_step_age_seconds", s.last_step_age_seconds},
          {"blocks_total", s.blocks_total},
          {"blocks_free", s.blocks_free},
          {"blocks_cached", s.blocks_cached},
          {"blocks_referenced", s.blocks_referenced},
          {"prefix_blocks_computed", s.prefix_blocks_computed},
          {"evictions", s.evictions},
          {"window_blocks_total", s.window_blocks_total},
          {"window_blocks_free", s.window_blocks_free},
          {"window_blocks_cached", s.window_blocks_cached},
          {"window_blocks_referenced", s.window_blocks_referenced},
          {"window_block_evictions", s.window_block_evictions},
          {"snapshots_total", s.snapshots_total},
          {"snapshots_cached", s.snapshots_cached},
          {"snapshot_hits", s.snapshot_hits},
          {"snapshot_evictions", s.snapshot_evictions},
          {"worker_restarts", s.worker_restarts},
          {"weight_bytes", s.weight_bytes},
          {"kv_bytes", s.kv_bytes},
          {"connections", s.connections},
          {"streams", s.streams},
          {"connections_accepted", s.connections_accepted},
          {"connections_refused", s.connections_refused},
          {"connections_broken", s.connections_broken},
          {"resident_bytes", s.resident_bytes},
          {"peak_resident_bytes", s.peak_resident_bytes},
          {"memory", memory},
          {"histogram_bounds", s.histogram_bounds},
          {"histograms", histograms},
          {"models", described}};
}

// Converts to the engine's type, so that bench and status print profiles with the same code.
engine::ProfileSnapshot to_snapshot(const client::Profile& profile) {
  engine::ProfileSnapshot out{.num_threads = profile.num_threads, .phases = {}};
  for (const client::PhaseTime& phase : profile.phases) {
    engine::PhaseTime& added = out.phases.emplace_back();
    added.name = Printable(phase.phase).text();
    added.steps = phase.steps;
    added.rows = phase.tokens;
    added.seconds = phase.seconds;
    added.measured_steps = phase.measured_steps;
    added.measured_seconds = phase.measured_seconds;
    for (const client::OperationTime& row : phase.operations)
      added.operations.push_back({.name = Printable(row.operation).text(),
                                  .calls = row.calls,
                                  .seconds = row.seconds,
                                  .joins = row.joins,
                                  .join_seconds = row.join_seconds,
                                  .busy_seconds = row.busy_seconds,
                                  .wake_up_seconds = row.wake_up_seconds,
                                  .wait_seconds = row.wait_seconds,
                                  .absent_seconds = row.absent_seconds,
                                  .layer_seconds = row.layer_seconds});
  }
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
  std::string line = human_bytes(s.resident_bytes) + " resident (at most " + human_bytes(s.peak_resident_bytes) + "): ";
  std::uint64_t rest = 0;
  for (const client::MemoryUse& use : uses) {
    if (use.bytes * 100 < s.resident_bytes) {
      rest += use.bytes;
    } else {
      line += use.kind + " " + human_bytes(use.bytes) + ", ";
    }
  }
  return line + "other " + human_bytes(rest);
}

std::string to_text(const client::ServerStatus& s) {
  using std::to_string;
  std::string ended;
  for (const auto& [outcome, count] : s.requests_ended)
    if (count > 0) ended += (ended.empty() ? "" : ", ") + outcome + " " + to_string(count);
  const std::string loaded = s.health.readiness == client::Readiness::loading
                                 ? " (" + fixed(100 * s.health.load_fraction, 0) + " %)"
                                 : std::string();
  std::vector<std::pair<std::string, std::string>> lines{
      {"health", name_of(s.health) + loaded},
      {"server", s.server + ", up " + fixed(s.uptime_seconds, 0) + " s"},
      {"model", s.model + (s.numerics_id.empty() ? "" : " (" + s.numerics_id + ")")},
      {"compute", s.kernels + ", " + to_string(s.num_threads) + " threads"},
      {"budgeted", "weights " + human_bytes(s.weight_bytes) + ", KV cache up to " + human_bytes(s.kv_bytes)},
      {"requests", to_string(s.requests_waiting) + " waiting, " + to_string(s.requests_running) + " running, " +
                       to_string(s.requests_parked) + " parked, " + to_string(s.requests_received) + " received" +
                       (s.own_only ? " (yours)" : "")},
      {"ended", ended.empty() ? "none" : ended},
      {"tokens", to_string(s.prompt_tokens) + " of prompts (" + to_string(s.cached_tokens) + " cached, " +
                     percent(static_cast<double>(s.cached_tokens), static_cast<double>(s.prompt_tokens)) + "), " +
                     to_string(s.generated_tokens) + " generated"},
  };
  if (s.own_only) return aligned(lines);  // the server sends no more to a guest
  const std::vector<std::pair<std::string, std::string>> of_all{
      {"memory", memory_line(s)},
      {"connections", to_string(s.connections) + " open with " + to_string(s.streams) + " streams; " +
                          to_string(s.connections_accepted) + " accepted, " + to_string(s.connections_refused) +
                          " refused, " + to_string(s.connections_broken) + " broken"},
      {"steps", to_string(s.steps) + ", " +
                    fixed(s.steps ? 1e3 * s.step_seconds / static_cast<double>(s.steps) : 0, 2) + " ms each, last " +
                    fixed(s.last_step_age_seconds, 1) + " s ago; " + to_string(s.preemptions) + " preemptions, " +
                    to_string(s.worker_restarts) + " restarts"},
      {"blocks", to_string(s.blocks_total) + " of " + to_string(kBlockSize) + " tokens: " + to_string(s.blocks_free) +
                     " free, " + to_string(s.blocks_cached) + " cached, " + to_string(s.blocks_referenced) +
                     " in use; " + to_string(s.prefix_blocks_computed) + " published, " + to_string(s.evictions) +
                     " evicted"},
  };
  lines.insert(lines.end(), of_all.begin(), of_all.end());
  if (s.window_blocks_total > 0)
    lines.emplace_back("windows", to_string(s.window_blocks_total) + " blocks of layers with a window: " +
                                      to_string(s.window_blocks_free) + " free, " + to_string(s.window_blocks_cached) +
                                      " cached, " + to_string(s.window_blocks_referenced) + " in use; " +
                                      to_string(s.window_block_evictions) + " evicted");
  if (s.snapshots_total > 0)
    lines.emplace_back("snapshots", to_string(s.snapshots_total) + " of recurrent state: " +
                                        to_string(s.snapshots_cached) + " cached; " + to_string(s.snapshot_hits) +
                                        " hits, " + to_string(s.snapshot_evictions) + " evicted");
  return aligned(lines);
}

}  // namespace

Result<int> status(const config::Parsed& parsed) {
  const auto client = connect(parsed.options, "troupe status");
  if (!client) return client.error();
  const bool profile = parsed.options.show_profile;
  if (profile && parsed.options.prometheus)
    return Error{ErrorCode::invalid_argument, "--profile and --prometheus: choose one of the two"};
  const auto status = (*client)->status(/*list_requests=*/false, profile);
  if (!status) return status.error();
  if (profile && !status->profile)
    return Error{ErrorCode::unsupported,
                 "this server does not measure its steps; start it with `troupe serve --profile`"};
  if (parsed.options.prometheus) {
    std::cout << to_prometheus(*status);
  } else if (parsed.options.json) {
    const auto models = (*client)->models();
    if (!models) return models.error();
    auto report = to_json(*status, *models);
    if (profile) report["profile"] = profile_json(to_snapshot(*status->profile));
    write_json(report, std::cout);
  } else if (profile) {
    const engine::ProfileSnapshot snapshot = to_snapshot(*status->profile);
    std::cout << (snapshot.phases.empty() ? "no step was computed yet\n" : profile_text(snapshot));
  } else {
    std::cout << to_text(*status);
  }
  return exit_code_of(status->health);
}

}  // namespace troupe::cli
