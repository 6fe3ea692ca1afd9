#include "actors/telemetry.h"

#include <stdexcept>

#include "actors/embedder.h"
#include "actors/serving/model_cache.h"

namespace troupe::actors {

Telemetry::Telemetry(caf::actor_config& cfg) : ActorBase(cfg, "telemetry") {}

caf::behavior Telemetry::make_behavior() {
  return {
      [this](const msg::Snapshot& snapshot) { ask(snapshot); },
      [this](const msg::Fenced& fenced) { answer(fenced.number); },
      [](const msg::Crash&) { throw std::runtime_error("a test asked for it"); },
  };
}

void Telemetry::ask(const msg::Snapshot& snapshot) {
  const std::uint64_t number = ++last_number_;
  asked_.emplace(number, snapshot);
  if (!snapshot.batcher) return answer(number);
  send(snapshot.batcher, msg::Fence{this, number});
  delayed_send(this, kFenceTimeout, msg::Fenced{number});
}

void Telemetry::answer(std::uint64_t number) {
  const auto asked = asked_.extract(number);
  if (asked.empty()) return;  // answered already
  asked.mapped().query->answer(home_system().clock().now());
}

namespace {

KnownMemory known_memory(const ServerContext& context, std::uint64_t stream_bytes) {
  KnownMemory known{.step_buffers = context.counters.workspace_bytes(), .streams = stream_bytes};
  if (const auto model = context.model.model()) {
    known.weights = model->model().weight_bytes();
    known.weights_on_heap = model->weight_heap_bytes();
    known.vocabulary = model->vocabulary_bytes();
    known.kv_cache = resident_kv_bytes(*model);
    if (model->snapshots()) known.snapshots = model->snapshots()->resident_bytes();
  }
  if (context.embedder) context.embedder->add_to(known);
  return known;
}

}  // namespace

StatusSnapshot take_snapshot(const ServerContext& context, TimePoint now) {
  StatusSnapshot snapshot;
  snapshot.readiness = context.model.readiness();
  snapshot.load_fraction = context.model.fraction();
  snapshot.model = context.model.name();
  snapshot.num_threads = context.options.num_threads;
  if (const auto model = context.model.model()) {
    snapshot.numerics_id = model->numerics_id();
    snapshot.kernels = model->kernels().name;
    snapshot.weight_bytes = model->model().weight_bytes();
    snapshot.kv_bytes = kv_bytes(*model);
  }
  StreamCounts counts = context.streams.counts();
  const TimePoint::duration still = context.counters.without_progress(context.streams.work_since(), now);
  snapshot.requests_received = counts.received;
  snapshot.requests_ended = std::move(counts.ended);
  snapshot.requests_waiting = counts.waiting();
  snapshot.requests_running = counts.in(RequestState::running);
  snapshot.requests_parked = counts.in(RequestState::parked);
  snapshot.prompt_tokens = counts.prompt_tokens;
  snapshot.cached_tokens = counts.cached_tokens;
  snapshot.generated_tokens = counts.generated_tokens;
  snapshot.preemptions = counts.preemptions;
  snapshot.latencies = counts.latencies;
  snapshot.requests = context.streams.views(now);
  const engine::ProcessMemory process = engine::process_memory();
  snapshot.resident_bytes = process.resident;
  snapshot.peak_resident_bytes = process.peak_resident;
  snapshot.memory = context.memory.entries(known_memory(context, counts.bytes), process);
  if (context.options.profiler) snapshot.profile = context.options.profiler->snapshot();
  context.counters.fill(snapshot, now);
  snapshot.last_step_age_seconds = std::chrono::duration<double>(still).count();
  snapshot.stalled = still > context.options.progress_timeout;
  return snapshot;
}

}  // namespace troupe::actors
