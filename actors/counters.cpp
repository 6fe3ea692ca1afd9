#include "actors/counters.h"

#include <algorithm>

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

void Counters::step_ended(double step_seconds, TimePoint now) {
  const std::lock_guard lock(mutex_);
  last_progress_ = now;
  ++steps_;
  step_seconds_ += step_seconds;
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
  published_before_ += cache_.published;
  evictions_before_ += cache_.evictions;
  cache_.published = 0;
  cache_.evictions = 0;
}

TimePoint::duration Counters::without_progress(const StreamCounts& counts, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  if (!has_model_ || !counts.has_work()) return {};
  return now - std::min(now, std::max(last_progress_, counts.work_since));
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
  snapshot.prefix_blocks_computed = published_before_ + cache_.published;
  snapshot.evictions = evictions_before_ + cache_.evictions;
  snapshot.worker_restarts = restarts_;
}

}  // namespace troupe::actors
