#include "actors/telemetry.h"

#include <algorithm>

#include "actors/serving/model_cache.h"
#include "actors/serving/served_model.h"

namespace troupe::actors {

void UnitQuestions::answer_status(std::uint64_t number) {
  if (const auto query = status.take(number)) (*query)->counted();
}

void UnitQuestions::answer_all_status() {
  for (const auto& query : status.take_all()) query->counted();
}

Telemetry::Telemetry(caf::actor_config& cfg, UnitQuestions& questions)
    : ActorBase(cfg, "telemetry"), questions_(questions) {}

caf::behavior Telemetry::make_behavior() {
  return {
      [this](const msg::Snapshot& snapshot) {
        if (!snapshot.batcher) return questions_.answer_status(snapshot.number);
        send(snapshot.batcher, msg::Fence{this, snapshot.number});
        delayed_send(this, kFenceTimeout, msg::Fenced{snapshot.number});
      },
      [this](const msg::Fenced& fenced) { questions_.answer_status(fenced.number); },  // the first of the two
      msg::throw_for_test,
  };
}

StatusSnapshot take_snapshot(const UnitContext& context, TimePoint now) {
  StatusSnapshot snapshot;
  snapshot.readiness = context.model.readiness();
  snapshot.load_fraction = context.model.fraction();
  snapshot.model = context.model.name();
  snapshot.num_threads = context.options.num_threads;
  if (const auto model = context.model.model()) {
    snapshot.numerics_id = model->numerics_id();
    snapshot.kernels = model->kernels().name;
    snapshot.weight_bytes = model->weight_bytes();
    if (const auto& language_model = model->language_model()) snapshot.kv_bytes = kv_bytes(*language_model);
  }
  StreamCounts counts = context.streams.counts();
  snapshot.tenants = context.streams.tenants().all();
  snapshot.requests = context.streams.views(now);
  MemoryReport memory = context.memory.last();
  snapshot.memory = std::move(memory.kinds);
  if (context.options.profiler) snapshot.profile = context.options.profiler->snapshot();
  const TimePoint::duration still = context.counters.without_progress(context.streams.work_since(), now);

  MetricList& metrics = snapshot.metrics;
  counts.append_metrics(metrics);
  context.counters.append_metrics(metrics, now);
  context.counters.append_drafts(metrics, snapshot.model);
  {
    const auto lock = context.shares->lock();
    append_experience(metrics, *context.shares->experience(), context.options.max_stall);
  }
  if (context.options.append_metrics) context.options.append_metrics(metrics);
  snapshot.stalled = still > context.options.progress_timeout;
  metrics.gauge("ready", "1 while requests are served.", snapshot.readiness == Readiness::ready, {.for_guests = true});
  metrics.gauge("stalled", "1 while requests wait and no step ends.", snapshot.stalled, {.for_guests = true});
  metrics.gauge("last_step_age_seconds", "Since the last progress, while there is work.",
                std::chrono::duration<double>(still).count());
  metrics.gauge("resident_memory_bytes", "Resident memory of the server.", memory.resident_bytes,
                {.key = "resident_bytes"});
  metrics.gauge("resident_memory_peak_bytes", "The most so far.", memory.peak_resident_bytes,
                {.key = "peak_resident_bytes"});
  return snapshot;
}

}  // namespace troupe::actors
