// The server's counters beside those of its streams: steps, the cache, restarts. Outlives every actor.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "actors/serving/stream_table.h"
#include "actors/status/latency.h"
#include "cache/lease_book.h"
#include "config/metric.h"
#include "engine/engine.h"

namespace troupe::actors {

// Thread-safe.
class Counters {
 public:
  explicit Counters(TimePoint start);

  void model_loaded(TimePoint now);  // before this call, waiting for a step does not count as a stall
  void step_began(TimePoint now);
  // continues: after the step before there was work left, so the time between both is overhead.
  void step_ended(const engine::StepResult& step, bool continues, TimePoint now);
  void freed(double seconds);  // from a cancel until its blocks were given back
  void cache(const cache::CacheCounters& counters);
  void pass_ended(TimePoint now);       // over texts of an Embed
  void embedding(std::uint64_t bytes);  // memory of the Embed that is being computed
  std::uint64_t num_ended() const;      // steps and passes
  void restarted();                     // an actor died and was replaced
  void keeper_restarted();              // the next cache() counts from zero again

  std::uint64_t step_buffer_bytes() const;  // of the target worker's executor and the embed worker
  // The time since a step began or ended, the model was loaded, or work arrived, whichever was last; 0 before the model
  // is loaded. work_since: StreamTable::work_since(); if it is nullopt, the result is 0.
  TimePoint::duration without_progress(std::optional<TimePoint> work_since, TimePoint now) const;
  void append_metrics(MetricList& metrics, TimePoint now) const;

 private:
  mutable std::mutex mutex_;
  TimePoint start_;
  bool has_model_ = false;
  TimePoint last_progress_;  // a step began or ended, or the model was loaded
  std::uint64_t steps_ = 0;
  std::uint64_t passes_ = 0;
  double step_seconds_ = 0;
  TimePoint kernels_ended_;  // of the last step
  std::uint64_t workspace_bytes_ = 0;
  std::uint64_t embedding_bytes_ = 0;
  Latencies latencies_;
  std::uint64_t restarts_ = 0;
  cache::CacheCounters cache_;
  cache::CacheCounters before_;  // counts of earlier keepers
};

}  // namespace troupe::actors
