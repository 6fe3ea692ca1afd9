// The server's counters beside those of its streams: steps, the cache, restarts. Outlives every actor.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "actors/batching/draft_counts.h"
#include "actors/requests/latency.h"
#include "actors/requests/latency_sketch.h"
#include "actors/serving/stream_table.h"
#include "cache/lease_book.h"
#include "config/metric.h"
#include "engine/engine.h"
#include "scheduler/experience.h"

namespace troupe::actors {

// Thread-safe.
class Counters {
 public:
  explicit Counters(TimePoint start);

  // Before this call, waiting for a step does not count as a stall.
  void model_loaded(TimePoint now) {
    const std::lock_guard lock(mutex_);
    has_model_ = true;
    last_progress_ = now;
  }
  void step_began(TimePoint now) {
    const std::lock_guard lock(mutex_);
    last_progress_ = now;
  }
  // continues: after the step before there was work left, so the time between both is overhead.
  void step_ended(const engine::StepResult& step, bool continues, TimePoint now);
  void drafted(const DraftCountsByDrafter& counts);
  // A pass over texts of an Embed.
  void pass_ended(TimePoint now) {
    const std::lock_guard lock(mutex_);
    last_progress_ = now;
    ++passes_;
  }
  // seconds: from a cancel until its blocks were given back.
  void freed(double seconds) {
    const std::lock_guard lock(mutex_);
    latencies_.add(Latency::cancel_latency, seconds);
  }
  void cache(const cache::CacheCounters& counters) {
    const std::lock_guard lock(mutex_);
    cache_ = counters;
  }
  // Memory of the Embed that is being computed.
  void embedding(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    embedding_bytes_ = bytes;
  }
  // An actor died and was replaced.
  void restarted() {
    const std::lock_guard lock(mutex_);
    ++restarts_;
  }
  void keeper_restarted();  // the next cache() counts from zero again

  std::uint64_t num_ended() const {  // steps and passes
    const std::lock_guard lock(mutex_);
    return steps_ + passes_;
  }
  std::uint64_t step_buffer_bytes() const {  // of the target worker's executor and the embed worker
    const std::lock_guard lock(mutex_);
    return workspace_bytes_ + embedding_bytes_;
  }
  // The time since a step began or ended, the model was loaded, or work arrived, whichever was last; 0 before the model
  // is loaded. work_since: WorkClock::since(); if it is nullopt, the result is 0.
  TimePoint::duration without_progress(std::optional<TimePoint> work_since, TimePoint now) const;
  void append_metrics(MetricList& metrics, TimePoint now) const;
  // Of drafts, with the model's name; nothing before the first one.
  void append_drafts(MetricList& metrics, const std::string& model) const;
  // What drafts gained, for the log; empty if none was verified.
  [[nodiscard]] std::string drafts_gained() const;

 private:
  mutable std::mutex mutex_;
  bool has_model_ = false;
  TimePoint last_progress_;  // a step began or ended, or the model was loaded
  std::uint64_t steps_ = 0;
  std::uint64_t passes_ = 0;
  double step_seconds_ = 0;
  TimePoint kernels_ended_;  // of the last step
  std::uint64_t workspace_bytes_ = 0;
  std::uint64_t embedding_bytes_ = 0;
  DraftCountsByDrafter drafts_{};
  Latencies latencies_;
  RecentLatency step_overhead_;
  std::uint64_t restarts_ = 0;
  cache::CacheCounters cache_;
  cache::CacheCounters before_;  // counts of earlier keepers
};

// Of the cost model and of deadlines.
void append_experience(MetricList& metrics, const scheduler::Experience& learned, std::chrono::milliseconds max_stall);

}  // namespace troupe::actors
