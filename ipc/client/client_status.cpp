#include "ipc/client/client_status.h"

namespace troupe::client {
namespace {

Profile to_profile(const v1::Status::Profile& in) {
  Profile out{.num_threads = in.num_threads(), .phases = {}};
  for (const v1::Status::Profile::Phase& phase : in.phases()) {
    PhaseTime& added = out.phases.emplace_back(PhaseTime{.phase = phase.phase(),
                                                         .steps = phase.steps(),
                                                         .tokens = phase.tokens(),
                                                         .seconds = phase.seconds(),
                                                         .measured_steps = phase.measured_steps(),
                                                         .measured_seconds = phase.measured_seconds(),
                                                         .operations = {}});
    for (const v1::Status::Profile::Operation& row : phase.operations())
      added.operations.push_back({.operation = row.operation(),
                                  .calls = row.calls(),
                                  .seconds = row.seconds(),
                                  .joins = row.joins(),
                                  .join_seconds = row.join_seconds(),
                                  .busy_seconds = row.busy_seconds(),
                                  .wake_up_seconds = row.wake_up_seconds(),
                                  .wait_seconds = row.wait_seconds(),
                                  .absent_seconds = row.absent_seconds(),
                                  .layer_seconds = {row.layer_seconds().begin(), row.layer_seconds().end()}});
  }
  return out;
}

void add_lists(const v1::Status& in, ServerStatus& out) {
  for (const v1::Status::Histogram& histogram : in.histograms())
    out.histograms.push_back({.name = histogram.name(),
                              .counts = {histogram.counts().begin(), histogram.counts().end()},
                              .sum_seconds = histogram.sum_seconds()});
  for (const v1::Status::Memory& use : in.memory())
    out.memory.push_back({.kind = use.kind(), .bytes = use.bytes(), .peak_bytes = use.peak_bytes()});
  for (const v1::Status::LiveRequest& live : in.live_requests())
    out.live_requests.push_back({.request = live.request(),
                                 .stream = live.stream(),
                                 .uid = live.uid(),
                                 .state = live.state(),
                                 .priority = live.priority(),
                                 .prompt_tokens = live.prompt_tokens(),
                                 .cached_tokens = live.cached_tokens(),
                                 .computed_tokens = live.computed_tokens(),
                                 .generated_tokens = live.generated_tokens(),
                                 .preemptions = live.preemptions(),
                                 .age_seconds = live.age_seconds()});
}

}  // namespace

ServerStatus to_status(const v1::Status& in, const Health& health) {
  ServerStatus out{.health = health,
                   .server = in.server(),
                   .model = in.model(),
                   .numerics_id = in.numerics_id(),
                   .kernels = in.kernels(),
                   .uptime_seconds = in.uptime_seconds(),
                   .requests_received = in.requests_received(),
                   .requests_ended = {},
                   .kinds = {},
                   .own_only = in.own_only(),
                   .requests_waiting = in.requests_waiting(),
                   .requests_running = in.requests_running(),
                   .requests_parked = in.requests_parked(),
                   .prompt_tokens = in.prompt_tokens(),
                   .cached_tokens = in.cached_tokens(),
                   .generated_tokens = in.generated_tokens(),
                   .preemptions = in.preemptions(),
                   .steps = in.steps(),
                   .step_seconds = in.step_seconds(),
                   .last_step_age_seconds = in.last_step_age_seconds(),
                   .blocks_total = in.blocks_total(),
                   .blocks_free = in.blocks_free(),
                   .blocks_cached = in.blocks_cached(),
                   .blocks_referenced = in.blocks_referenced(),
                   .prefix_blocks_computed = in.prefix_blocks_computed(),
                   .evictions = in.evictions(),
                   .window_blocks_total = in.window_blocks_total(),
                   .window_blocks_free = in.window_blocks_free(),
                   .window_blocks_cached = in.window_blocks_cached(),
                   .window_blocks_referenced = in.window_blocks_referenced(),
                   .window_block_evictions = in.window_block_evictions(),
                   .snapshots_total = in.snapshots_total(),
                   .snapshots_cached = in.snapshots_cached(),
                   .snapshot_hits = in.snapshot_hits(),
                   .snapshot_evictions = in.snapshot_evictions(),
                   .worker_restarts = in.worker_restarts(),
                   .weight_bytes = in.weight_bytes(),
                   .kv_bytes = in.kv_bytes(),
                   .num_threads = in.num_threads(),
                   .connections = in.connections(),
                   .streams = in.streams(),
                   .connections_accepted = in.connections_accepted(),
                   .connections_refused = in.connections_refused(),
                   .connections_broken = in.connections_broken(),
                   .histogram_bounds = {in.histogram_bounds().begin(), in.histogram_bounds().end()},
                   .resident_bytes = in.resident_bytes(),
                   .peak_resident_bytes = in.peak_resident_bytes()};
  add_lists(in, out);
  if (in.has_profile()) out.profile = to_profile(in.profile());
  for (const v1::Status::Ended& ended : in.requests_ended())
    out.requests_ended.emplace_back(ended.outcome(), ended.count());
  for (const v1::Status::Kind& kind : in.kinds()) {
    ServerStatus::Kind& added = out.kinds.emplace_back();
    added.kind = kind.kind();
    added.received = kind.received();
    for (const v1::Status::Ended& ended : kind.ended()) added.ended.emplace_back(ended.outcome(), ended.count());
  }
  return out;
}

}  // namespace troupe::client
