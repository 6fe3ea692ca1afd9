#include "actors/status/counters.h"

#include <algorithm>
#include <utility>

namespace troupe::actors {
namespace {

double seconds(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

Counters::Counters(TimePoint start) : start_(start), last_progress_(start) {}

void Counters::model_loaded(TimePoint now) {
  const std::lock_guard lock(mutex_);
  has_model_ = true;
  last_progress_ = now;
}

void Counters::step_began(TimePoint now) {
  const std::lock_guard lock(mutex_);
  last_progress_ = now;
}

void Counters::step_ended(const engine::StepResult& step, bool continues, TimePoint now) {
  const std::lock_guard lock(mutex_);
  last_progress_ = now;
  ++steps_;
  step_seconds_ += step.compute_seconds;
  latencies_.add(Latency::step_duration, step.compute_seconds);
  if (continues) latencies_.add(Latency::step_overhead, seconds(kernels_ended_, step.kernels_began));
  kernels_ended_ = step.kernels_ended;
  workspace_bytes_ = step.workspace_bytes;
}

void Counters::freed(double freed_seconds) {
  const std::lock_guard lock(mutex_);
  latencies_.add(Latency::cancel_latency, freed_seconds);
}

std::uint64_t Counters::workspace_bytes() const {
  const std::lock_guard lock(mutex_);
  return workspace_bytes_;
}

void Counters::cache(const cache::CacheCounters& counters) {
  const std::lock_guard lock(mutex_);
  cache_ = counters;
}

std::uint64_t Counters::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

void Counters::restarted() {
  const std::lock_guard lock(mutex_);
  ++restarts_;
}

void Counters::keeper_restarted() {
  const std::lock_guard lock(mutex_);
  before_.published += std::exchange(cache_.published, 0);
  before_.evictions += std::exchange(cache_.evictions, 0);
  before_.window_blocks.evictions += std::exchange(cache_.window_blocks.evictions, 0);
  before_.snapshots.evictions += std::exchange(cache_.snapshots.evictions, 0);
  before_.snapshot_hits += std::exchange(cache_.snapshot_hits, 0);
}

TimePoint::duration Counters::without_progress(std::optional<TimePoint> work_since, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  if (!has_model_ || !work_since) return {};
  return now - std::min(now, std::max(last_progress_, *work_since));
}

void Counters::fill(StatusSnapshot& snapshot, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  snapshot.uptime_seconds = seconds(start_, now);
  snapshot.steps = steps_;
  snapshot.step_seconds = step_seconds_;
  snapshot.blocks_total = cache_.total;
  snapshot.blocks_free = cache_.free;
  snapshot.blocks_cached = cache_.cached;
  snapshot.blocks_referenced = cache_.referenced;
  snapshot.prefix_blocks_computed = before_.published + cache_.published;
  snapshot.evictions = before_.evictions + cache_.evictions;
  const cache::AttachmentCounters& windows = cache_.window_blocks;
  snapshot.window_blocks_total = windows.total;
  snapshot.window_blocks_free = windows.free;
  snapshot.window_blocks_cached = windows.cached;
  snapshot.window_blocks_referenced = windows.total - windows.available;
  snapshot.window_block_evictions = before_.window_blocks.evictions + windows.evictions;
  snapshot.snapshots_total = cache_.snapshots.total;
  snapshot.snapshots_cached = cache_.snapshots.cached;
  snapshot.snapshot_hits = before_.snapshot_hits + cache_.snapshot_hits;
  snapshot.snapshot_evictions = before_.snapshots.evictions + cache_.snapshots.evictions;
  snapshot.worker_restarts = restarts_;
  for (const Latency own : {Latency::step_duration, Latency::step_overhead, Latency::cancel_latency}) {
    const auto i = static_cast<std::size_t>(own);
    snapshot.latencies.histograms[i] = latencies_.histograms[i];
  }
}

}  // namespace troupe::actors
