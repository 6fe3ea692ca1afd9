#include "ipc/frames/status_frame.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <string>

#include "actors/serving/tenant_counters.h"
#include "config/utf8.h"
#include "ipc/frames/wire.h"
#include "scheduler/shares/model_rights.h"

namespace troupe::ipc {
namespace {

// By RequestState.
constexpr std::array<const char*, actors::kNumRequestStates> kStateNames = {"received", "encoding", "queued",
                                                                            "running",  "parked",   "ended"};

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

v1::Metric::Kind to_kind(MetricKind kind) {
  if (kind == MetricKind::counter) return v1::Metric::KIND_COUNTER;
  return kind == MetricKind::gauge ? v1::Metric::KIND_GAUGE : v1::Metric::KIND_HISTOGRAM;
}

// Sets the field of Status that is named as the metric's key, if there is one.
void set_field(const Metric& metric, v1::Status& out) {
  const google::protobuf::FieldDescriptor* const field = out.GetDescriptor()->FindFieldByName(metric.key);
  if (!field || field->is_repeated()) return;
  const google::protobuf::Reflection& fields = *out.GetReflection();
  switch (field->cpp_type()) {
    case google::protobuf::FieldDescriptor::CPPTYPE_UINT32:
      return fields.SetUInt32(&out, field, static_cast<std::uint32_t>(metric.value));
    case google::protobuf::FieldDescriptor::CPPTYPE_UINT64:
      return fields.SetUInt64(&out, field, static_cast<std::uint64_t>(metric.value));
    case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
      return fields.SetDouble(&out, field, metric.value);
    default:
      return;
  }
}

// Ids count all users' requests: a guest is told its own numbers.
void add_requests(const std::vector<actors::RequestView>& requests, const StatusView& caller, v1::Status& out) {
  for (const actors::RequestView& view : requests) {
    const auto own = caller.own.find(view.request);
    const bool is_own = own != caller.own.end();
    if (!caller.tenant.is_owner && !is_own) continue;  // its connection was closed; it will end soon
    v1::Status::LiveRequest& added = *out.add_live_requests();
    added.set_request(caller.tenant.is_owner ? view.request : own->second.number);
    if (is_own) added.set_stream(own->second.stream);
    added.set_uid(view.uid);
    added.set_tenant(view.tenant_name);
    added.set_client_id(view.client_id);
    added.set_state(kStateNames.at(static_cast<std::size_t>(view.state)));
    added.set_priority(view.priority);
    added.set_prompt_tokens(view.prompt_tokens);
    added.set_cached_tokens(view.cached_tokens);
    added.set_computed_tokens(view.computed_tokens);
    added.set_generated_tokens(view.generated_tokens);
    added.set_preemptions(view.preemptions);
    added.set_age_seconds(view.age_seconds);
  }
}

void add_memory(v1::Status::ModelUse& out, const char* kind, std::uint64_t bytes) {
  v1::Status::Memory& added = *out.add_memory();
  added.set_kind(kind);
  added.set_bytes(bytes);
}

// Requests, tokens and memory change with other users' activity: for owners alone.
void add_model(const actors::ModelReport& report, bool for_owner, v1::Status& out) {
  *out.mutable_health()->add_models() = to_model_health(report.health, for_owner);
  v1::Status::ModelUse& use = *out.add_models();
  use.set_name(valid_utf8(report.health.name));
  use.set_numerics_id(valid_utf8(report.numerics_id));
  use.set_kernels(report.kernels);
  use.set_weight_bytes(report.weight_bytes);
  use.set_kv_bytes(report.kv_bytes);
  if (!for_owner) return;
  use.set_requests_waiting(report.states.waiting);
  use.set_requests_running(report.states.running);
  use.set_requests_parked(report.states.parked);
  use.set_prompt_tokens(report.tokens.prompt);
  use.set_cached_tokens(report.tokens.cached);
  use.set_generated_tokens(report.tokens.generated);
  add_memory(use, "weights", report.memory.weights);
  add_memory(use, "kv_cache", report.memory.kv_cache);
  add_memory(use, "snapshots", report.memory.snapshots);
  add_memory(use, "step_buffers", report.memory.step_buffers);
  add_memory(use, "vocabulary", report.memory.vocabulary);
  add_memory(use, "forms", report.memory.forms);
}

// For a guest: the number of its own live requests by state.
actors::StateMetrics own_states(const std::vector<actors::RequestView>& requests, TenantId tenant) {
  actors::StateMetrics own;
  for (const actors::RequestView& view : requests) {
    if (view.tenant != tenant || view.state == actors::RequestState::ended) continue;
    ++(view.state == actors::RequestState::running  ? own.running
       : view.state == actors::RequestState::parked ? own.parked
                                                    : own.waiting);
  }
  return own;
}

// Whether this is the name of a model that the caller may not use.
bool hides(const actors::StatusSnapshot& status, const scheduler::Tenant& caller, const std::string& model) {
  if (scheduler::may_use_all(caller)) return false;
  const auto of_it =
      std::ranges::find(status.models, model, [](const actors::ModelReport& each) { return each.health.name; });
  return of_it == status.models.end() || !scheduler::may_use(caller, model, of_it->health.aliases);
}
bool hides(const actors::StatusSnapshot& status, const scheduler::Tenant& caller, const Metric& metric) {
  return std::ranges::any_of(
      metric.labels, [&](const auto& label) { return label.first == "model" && hides(status, caller, label.second); });
}

// The metrics of the snapshot that the caller may see.
MetricList visible_metrics(const actors::StatusSnapshot& status, const scheduler::Tenant& caller) {
  MetricList seen;
  seen.gauge("build_info", "1, with the version as a label.", 1,
             {.labels = {{"version", server_name()}, {"kernels", status.kernels}}});
  for (const Metric& metric : status.metrics)
    if (caller.is_owner || (metric.for_guests && !hides(status, caller, metric))) seen.append(metric);
  if (!caller.is_owner) own_states(status.requests, caller.id).append_metrics(seen);
  actors::append_tenant_metrics(status.tenants, caller, seen);
  return seen;
}

}  // namespace

std::vector<actors::RequestView> visible(const std::vector<actors::RequestView>& requests, const StatusView& caller) {
  std::vector<actors::RequestView> seen;
  for (const actors::RequestView& view : requests) {
    if (seen.size() == kMaxListedRequests) break;
    // A guest that saw other users' requests could tell which user asks, when, and for how much.
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
  for (const actors::ModelReport& each : status.models)
    if (scheduler::may_use(view.tenant, each.health.name, each.health.aliases))
      add_model(each, view.tenant.is_owner, out);
  if (!hides(status, view.tenant, status.model)) {
    out.set_model(valid_utf8(status.model));
    out.set_numerics_id(valid_utf8(status.numerics_id));
  }
  if (!hides(status, view.tenant, status.first_model)) out.set_first_model(valid_utf8(status.first_model));
  out.set_server(server_name());
  out.set_kernels(status.kernels);
  out.set_weight_bytes(status.weight_bytes);
  out.set_kv_bytes(status.kv_bytes);
  out.set_num_threads(status.num_threads);
  out.set_own_only(!view.tenant.is_owner);
  add_metrics(visible_metrics(status, view.tenant), out);
  out.mutable_histogram_bounds()->Add(actors::kLatencyBounds.begin(), actors::kLatencyBounds.end());
  if (view.tenant.is_owner) {
    for (const actors::MemoryUse& use : status.memory) {
      v1::Status::Memory& added = *out.add_memory();
      added.set_kind(use.kind);
      added.set_bytes(use.bytes);
      added.set_peak_bytes(use.peak_bytes);
    }
  }
  if (view.list_requests) add_requests(visible(status.requests, view), view, out);
  if (view.profile && view.tenant.is_owner && status.profile) add_profile(*status.profile, *out.mutable_profile());
  return frame;
}

void fit_status(v1::ServerFrame& frame, std::uint64_t max_frame_bytes) {
  auto& metrics = *frame.mutable_status()->mutable_metrics();
  if (frame.ByteSizeLong() <= max_frame_bytes) return;
  for (v1::Metric& metric : metrics) metric.clear_help();
  if (frame.ByteSizeLong() <= max_frame_bytes) return;
  const auto by_tenant = [](const v1::Metric& metric) {
    return metric.labels_size() > 0 && metric.labels(0).name() == "tenant";
  };
  metrics.erase(std::remove_if(metrics.begin(), metrics.end(), by_tenant), metrics.end());
}

void add_metrics(const MetricList& metrics, v1::Status& out) {
  for (const Metric& metric : metrics) {
    v1::Metric& added = *out.add_metrics();
    added.set_name(metric.name);
    added.set_help(metric.help);
    added.set_kind(to_kind(metric.kind));
    added.set_value(metric.value);
    for (const auto& [name, value] : metric.labels) {
      v1::Metric::Label& label = *added.add_labels();
      label.set_name(name);
      label.set_value(valid_utf8(value));
    }
    added.mutable_counts()->Add(metric.counts.begin(), metric.counts.end());
    added.set_key(metric.key);
    set_field(metric, out);
    if (metric.kind != MetricKind::histogram || metric.key.empty()) continue;
    v1::Status::Histogram& histogram = *out.add_histograms();
    histogram.set_name(metric.name);
    *histogram.mutable_counts() = added.counts();
    histogram.set_sum_seconds(metric.value);
  }
}

void add_counts(v1::Status& status, const RequestCounts& counts) {
  MetricList metrics;
  metrics.counter("requests_received", "Requests, admitted or not.",
                  counts.num_received(RequestKind::generate) + counts.num_received(RequestKind::embed));
  const auto add_ended = [](auto& ended, const std::string& outcome, std::uint64_t count) {
    v1::Status::Ended& added = *ended.Add();
    added.set_outcome(outcome);
    added.set_count(count);
  };
  for (const scheduler::OutcomeInfo& outcome : scheduler::outcomes()) {
    const std::string name(outcome.name);
    const std::uint64_t count = counts.num_ended(RequestKind::generate, outcome.outcome) +
                                counts.num_ended(RequestKind::embed, outcome.outcome);
    add_ended(*status.mutable_requests_ended(), name, count);
    if (outcome.kind == scheduler::OutcomeKind::done) {
      metrics.counter("request_success", "Answers that ended as asked, by how.", count,
                      {.labels = {{"finished_reason", name}}});
    } else {
      const bool refused = outcome.kind == scheduler::OutcomeKind::refused;
      metrics.counter("request_failure", "Requests that were refused or failed, by why.", count,
                      {.labels = {{"kind", refused ? "refused" : "failed"}, {"reason", name}}});
    }
  }
  for (const auto& [kind, kind_name, takes_work] : kRequestKinds) {
    if (counts.num_received(kind) == 0) continue;
    v1::Status::Kind& added = *status.add_kinds();
    added.set_kind(std::string(kind_name));
    added.set_received(counts.num_received(kind));
    for (const scheduler::OutcomeInfo& outcome : scheduler::outcomes()) {
      const std::uint64_t count = counts.num_ended(kind, outcome.outcome);
      if (count == 0) continue;
      add_ended(*added.mutable_ended(), std::string(outcome.name), count);
      metrics.counter("frames", "Frames and HTTP requests that asked for something, by kind and how they ended.", count,
                      {.labels = {{"kind", added.kind()}, {"outcome", std::string(outcome.name)}}});
    }
  }
  add_metrics(metrics, status);
}

}  // namespace troupe::ipc
