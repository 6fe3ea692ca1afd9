#include "ipc/client/client_status.h"

#include <utility>
#include <vector>

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

MetricKind to_kind(v1::Metric::Kind kind) {
  if (kind == v1::Metric::KIND_COUNTER) return MetricKind::counter;
  return kind == v1::Metric::KIND_HISTOGRAM ? MetricKind::histogram : MetricKind::gauge;
}

void add_lists(const v1::Status& in, ServerStatus& out) {
  std::vector<Metric> metrics;
  for (const v1::Metric& metric : in.metrics()) {
    Metric added{.name = metric.name(),
                 .help = metric.help(),
                 .kind = to_kind(metric.kind()),
                 .value = metric.value(),
                 .counts = {metric.counts().begin(), metric.counts().end()},
                 .key = metric.key()};
    for (const v1::Metric::Label& label : metric.labels()) added.labels.emplace_back(label.name(), label.value());
    metrics.push_back(std::move(added));
  }
  out.metrics = MetricList(std::move(metrics));
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
                   .own_only = in.own_only(),
                   .weight_bytes = in.weight_bytes(),
                   .kv_bytes = in.kv_bytes(),
                   .num_threads = in.num_threads(),
                   .histogram_bounds = {in.histogram_bounds().begin(), in.histogram_bounds().end()}};
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
