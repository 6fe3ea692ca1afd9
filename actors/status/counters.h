// What the server counts beside its streams: steps, the cache, restarts. Survives every actor.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "actors/serving/stream_table.h"
#include "actors/status_snapshot.h"
#include "cache/lease_book.h"

namespace troupe::actors {

// Thread-safe.
class Counters {
 public:
  explicit Counters(TimePoint start);

  void model_loaded(TimePoint now);  // before, no work waits for a step
  void step_began(TimePoint now);
  // continues: the step before had work left for this one.
  void step_ended(const engine::StepResult& step, bool continues, TimePoint now);
  void freed(double seconds);  // from a cancel to its blocks
  void cache(const cache::CacheCounters& counters);
  std::uint64_t steps() const;
  void restarted();         // an actor died and was replaced
  void keeper_restarted();  // the next cache() counts from zero again

  std::uint64_t workspace_bytes() const;  // of the worker's executor
  // How long ago a step ended, or there was something to compute again. work_since: StreamTable::work_since(); without
  // it zero.
  TimePoint::duration without_progress(std::optional<TimePoint> work_since, TimePoint now) const;
  // Fills in what this class knows.
  void fill(StatusSnapshot& snapshot, TimePoint now) const;

 private:
  mutable std::mutex mutex_;
  TimePoint start_;
  bool has_model_ = false;
  TimePoint last_progress_;  // a step began or ended, or the model was loaded
  std::uint64_t steps_ = 0;
  double step_seconds_ = 0;
  TimePoint kernels_ended_;  // of the last step
  std::uint64_t workspace_bytes_ = 0;
  Latencies latencies_;
  std::uint64_t restarts_ = 0;
  cache::CacheCounters cache_;
  cache::CacheCounters before_;  // what earlier keepers counted
};

}  // namespace troupe::actors
