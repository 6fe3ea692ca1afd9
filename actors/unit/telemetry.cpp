#include "actors/unit/telemetry.h"

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

StatusSnapshot take_snapshot(const ServerContext& server, const UnitParts& unit, TimePoint now) {
  StatusSnapshot snapshot;
  snapshot.readiness = unit.model.readiness();
  snapshot.load_fraction = unit.model.fraction();
  snapshot.model = unit.model.name();
  snapshot.num_threads = server.options.num_threads;
  if (const auto model = unit.model.model()) {
    snapshot.numerics_id = model->numerics_id();
    snapshot.kernels = model->kernels().name;
    snapshot.weight_bytes = model->weight_bytes();
    if (const auto& language_model = model->language_model()) snapshot.kv_bytes = kv_bytes(*language_model);
  }
  StreamCounts counts = server.streams.counts();
  snapshot.tenants = server.streams.tenants().all();
  snapshot.requests = server.streams.views(now);
  MemoryReport memory = server.memory.last();
  snapshot.memory = std::move(memory.kinds);
  if (server.options.profiler) snapshot.profile = server.options.profiler->snapshot();
  const TimePoint::duration still = unit.counters.without_progress(server.streams.work_since(), now);

  MetricList& metrics = snapshot.metrics;
  counts.append_metrics(metrics);
  unit.counters.append_metrics(metrics, now);
  unit.counters.append_drafts(metrics, snapshot.model);
  {
    const auto lock = unit.shares->lock();
    append_experience(metrics, *unit.shares->experience(), server.options.max_stall);
  }
  if (server.options.append_metrics) server.options.append_metrics(metrics);
  snapshot.stalled = still > server.options.progress_timeout;
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
