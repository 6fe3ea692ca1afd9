// What the server counts beside its streams: steps, the cache, restarts. Survives every actor.
#pragma once

#include <cstdint>
#include <mutex>

#include "actors/gateway.h"
#include "actors/stream_table.h"
#include "cache/lease_book.h"

namespace troupe::actors {

// Thread-safe.
class Counters {
 public:
  explicit Counters(TimePoint start);

  void work_arrived(TimePoint now);  // there was nothing to do before
  void step_began(TimePoint now);
  void step_ended(double seconds, TimePoint now);
  void cache(const cache::CacheCounters& counters);
  void restarted();         // an actor died and was replaced
  void keeper_restarted();  // the next cache() counts from zero again

  // Fills in what this class knows. busy: there are requests that wait or run.
  void fill(StatusSnapshot& snapshot, bool busy, TimePoint now) const;

 private:
  mutable std::mutex mutex_;
  TimePoint start_;
  TimePoint last_progress_;  // a step began or ended, or work arrived after a pause
  std::uint64_t steps_ = 0;
  double step_seconds_ = 0;
  std::uint64_t restarts_ = 0;
  cache::CacheCounters cache_;
  std::uint64_t published_before_ = 0;  // by earlier keepers
  std::uint64_t evictions_before_ = 0;
};

}  // namespace troupe::actors
