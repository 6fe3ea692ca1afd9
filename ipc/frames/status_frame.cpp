#include "ipc/frames/status_frame.h"

#include <string>

#include "config/utf8.h"
#include "ipc/frames/wire.h"

namespace troupe::ipc {
namespace {

const char* name_of(actors::RequestState state) {
  switch (state) {
    case actors::RequestState::received:
      return "received";
    case actors::RequestState::encoding:
      return "encoding";
    case actors::RequestState::queued:
      return "queued";
    case actors::RequestState::running:
      return "running";
    case actors::RequestState::parked:
      return "parked";
    case actors::RequestState::ended:
      break;
  }
  return "ended";
}

void add_profile(const engine::ProfileSnapshot& profile, v1::Status::Profile& out) {
  out.set_num_threads(profile.num_threads);
  for (const engine::PhaseTime& phase : profile.phases) {
    v1::Status::Profile::Phase& added = *out.add_phases();
    added.set_phase(phase.name);
    added.set_steps(phase.steps);
    added.set_tokens(phase.rows);
    added.set_seconds(phase.seconds);
    added.set_measured_steps(phase.measured_steps);
    added.set_measured_seconds(phase.measured_seconds);
    for (const engine::OperationTime& operation : phase.operations) {
      v1::Status::Profile::Operation& row = *added.add_operations();
      row.set_operation(operation.name);
      row.set_calls(operation.calls);
      row.set_seconds(operation.seconds);
      row.set_joins(operation.joins);
      row.set_join_seconds(operation.join_seconds);
      row.set_busy_seconds(operation.busy_seconds);
      row.set_wake_up_seconds(operation.wake_up_seconds);
      row.set_wait_seconds(operation.wait_seconds);
      row.set_absent_seconds(operation.absent_seconds);
      row.mutable_layer_seconds()->Add(operation.layer_seconds.begin(), operation.layer_seconds.end());
    }
  }
}

// The repeated fields: latencies and memory.
void add_lists(const actors::StatusSnapshot& status, v1::Status& out) {
  out.mutable_histogram_bounds()->Add(actors::kLatencyBounds.begin(), actors::kLatencyBounds.end());
  for (std::size_t i = 0; i < actors::kLatencyNames.size(); ++i) {
    const actors::Histogram& histogram = status.latencies.histograms[i];
    v1::Status::Histogram& added = *out.add_histograms();
    added.set_name(std::string(actors::kLatencyNames[i]));
    added.mutable_counts()->Add(histogram.counts.begin(), histogram.counts.end());
    added.set_sum_seconds(histogram.sum_seconds);
  }
  for (const actors::MemoryUse& use : status.memory) {
    v1::Status::Memory& added = *out.add_memory();
    added.set_kind(use.kind);
    added.set_bytes(use.bytes);
    added.set_peak_bytes(use.peak_bytes);
  }
  out.set_resident_bytes(status.resident_bytes);
  out.set_peak_resident_bytes(status.peak_resident_bytes);
}

// Ids count all users' requests: a guest is told its own numbers.
void add_requests(const std::vector<actors::RequestView>& requests, const StatusView& caller, v1::Status& out) {
  for (const actors::RequestView& view : requests) {
    const auto own = caller.own.find(view.request);
    const bool is_own = own != caller.own.end();
    if (!caller.tenant.is_owner && !is_own) continue;  // its connection has gone, its end is on the way
    v1::Status::LiveRequest& added = *out.add_live_requests();
    added.set_request(caller.tenant.is_owner ? view.request : own->second.number);
    if (is_own) added.set_stream(own->second.stream);
    added.set_uid(static_cast<std::uint32_t>(view.tenant));
    added.set_state(name_of(view.state));
    added.set_priority(view.priority);
    added.set_prompt_tokens(view.prompt_tokens);
    added.set_cached_tokens(view.cached_tokens);
    added.set_computed_tokens(view.computed_tokens);
    added.set_generated_tokens(view.generated_tokens);
    added.set_preemptions(view.preemptions);
    added.set_age_seconds(view.age_seconds);
  }
}

// The fields that change with any user's requests; for owners only.
void add_activity(const actors::StatusSnapshot& status, v1::Status& out) {
  out.set_requests_waiting(status.requests_waiting);
  out.set_requests_running(status.requests_running);
  out.set_requests_parked(status.requests_parked);
  out.set_prompt_tokens(status.prompt_tokens);
  out.set_cached_tokens(status.cached_tokens);
  out.set_generated_tokens(status.generated_tokens);
  out.set_preemptions(status.preemptions);
  out.set_steps(status.steps);
  out.set_step_seconds(status.step_seconds);
  out.set_last_step_age_seconds(status.last_step_age_seconds);
  out.set_blocks_total(status.blocks_total);
  out.set_blocks_free(status.blocks_free);
  out.set_blocks_cached(status.blocks_cached);
  out.set_blocks_referenced(status.blocks_referenced);
  out.set_prefix_blocks_computed(status.prefix_blocks_computed);
  out.set_evictions(status.evictions);
  out.set_window_blocks_total(status.window_blocks_total);
  out.set_window_blocks_free(status.window_blocks_free);
  out.set_window_blocks_cached(status.window_blocks_cached);
  out.set_window_blocks_referenced(status.window_blocks_referenced);
  out.set_window_block_evictions(status.window_block_evictions);
  out.set_snapshots_total(status.snapshots_total);
  out.set_snapshots_cached(status.snapshots_cached);
  out.set_snapshot_hits(status.snapshot_hits);
  out.set_snapshot_evictions(status.snapshot_evictions);
  out.set_worker_restarts(status.worker_restarts);
  add_lists(status, out);
}

// For a guest: the number of its own live requests by state.
void add_own_states(const std::vector<actors::RequestView>& requests, TenantId tenant, v1::Status& out) {
  for (const actors::RequestView& view : requests) {
    if (view.tenant != tenant) continue;
    switch (view.state) {
      case actors::RequestState::received:
      case actors::RequestState::encoding:
      case actors::RequestState::queued:
        out.set_requests_waiting(out.requests_waiting() + 1);
        break;
      case actors::RequestState::running:
        out.set_requests_running(out.requests_running() + 1);
        break;
      case actors::RequestState::parked:
        out.set_requests_parked(out.requests_parked() + 1);
        break;
      case actors::RequestState::ended:
        break;
    }
  }
}

}  // namespace

std::vector<actors::RequestView> visible(const std::vector<actors::RequestView>& requests, const StatusView& caller) {
  std::vector<actors::RequestView> seen;
  for (const actors::RequestView& view : requests) {
    if (seen.size() == kMaxListedRequests) break;
    // Of others' requests a guest could guess who asks, when, and how much.
    if (!caller.tenant.is_owner && view.tenant != caller.tenant.id) continue;
    const auto own = caller.own.find(view.request);
    if (caller.this_connection && (own == caller.own.end() || own->second.stream == 0)) continue;
    seen.push_back(view);
  }
  return seen;
}

v1::ServerFrame status_frame(std::uint64_t stream, const actors::StatusSnapshot& status, const StatusView& view) {
  v1::ServerFrame frame;
  v1::Status& out = *frame.mutable_status();
  out.set_stream(stream);
  *out.mutable_health() = to_health(status.readiness, status.load_fraction, status.stalled);
  out.set_model(valid_utf8(status.model));
  out.set_numerics_id(valid_utf8(status.numerics_id));
  out.set_server(server_name());
  out.set_kernels(status.kernels);
  out.set_uptime_seconds(status.uptime_seconds);
  out.set_weight_bytes(status.weight_bytes);
  out.set_kv_bytes(status.kv_bytes);
  out.set_num_threads(status.num_threads);
  out.set_own_only(!view.tenant.is_owner);
  if (view.tenant.is_owner)
    add_activity(status, out);
  else
    add_own_states(status.requests, view.tenant.id, out);
  if (view.list_requests) add_requests(visible(status.requests, view), view, out);
  if (view.profile && view.tenant.is_owner && status.profile) add_profile(*status.profile, *out.mutable_profile());
  return frame;
}

void add_counts(v1::Status& status, const RequestCounts& counts) {
  status.set_requests_received(counts.num_received(RequestKind::generate) + counts.num_received(RequestKind::embed));
  for (const scheduler::OutcomeInfo& outcome : scheduler::outcomes()) {
    v1::Status::Ended& ended = *status.add_requests_ended();
    ended.set_outcome(std::string(outcome.name));
    ended.set_count(counts.num_ended(RequestKind::generate, outcome.outcome) +
                    counts.num_ended(RequestKind::embed, outcome.outcome));
  }
  for (std::size_t i = 0; i < kRequestKindNames.size(); ++i) {
    const auto kind = static_cast<RequestKind>(i);
    if (counts.num_received(kind) == 0) continue;
    v1::Status::Kind& added = *status.add_kinds();
    added.set_kind(std::string(kRequestKindNames[i]));
    added.set_received(counts.num_received(kind));
    for (const scheduler::OutcomeInfo& outcome : scheduler::outcomes()) {
      if (counts.num_ended(kind, outcome.outcome) == 0) continue;
      v1::Status::Ended& ended = *added.add_ended();
      ended.set_outcome(std::string(outcome.name));
      ended.set_count(counts.num_ended(kind, outcome.outcome));
    }
  }
}

}  // namespace troupe::ipc
