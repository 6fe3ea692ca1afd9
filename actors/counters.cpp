#include "actors/counters.h"

namespace troupe::actors {
namespace {

double seconds(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

Counters::Counters(TimePoint start) : start_(start), last_progress_(start) {}

void Counters::work_arrived(TimePoint now) {
  const std::lock_guard lock(mutex_);
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

void Counters::fill(StatusSnapshot& snapshot, bool busy, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  snapshot.uptime_seconds = seconds(start_, now);
  snapshot.steps = steps_;
  snapshot.step_seconds = step_seconds_;
  snapshot.last_step_age_seconds = busy ? seconds(last_progress_, now) : 0;
  snapshot.blocks_total = cache_.total;
  snapshot.blocks_free = cache_.free;
  snapshot.blocks_cached = cache_.cached;
  snapshot.blocks_referenced = cache_.referenced;
  snapshot.prefix_blocks_computed = published_before_ + cache_.published;
  snapshot.evictions = evictions_before_ + cache_.evictions;
  snapshot.worker_restarts = restarts_;
}

}  // namespace troupe::actors
