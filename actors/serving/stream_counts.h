// The counters of a StreamTable, and how events change them. Plain values.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/requests/latency_sketch.h"
#include "actors/requests/request.h"
#include "actors/requests/status_snapshot.h"

namespace troupe::actors {

// When the events of one stream happened.
struct StreamTimes {
  TimePoint submitted{};
  std::optional<TimePoint> first_step{}, first_token{}, last_token{};  // a token has a step before it

  // Sets the times of the usage of a stream that ends now.
  void fill(Usage& usage, TimePoint now) const;
};

// Counters since the start, and how many streams are in each state now.
struct StreamCounts {
  std::array<std::uint64_t, kNumRequestStates> in_state{};
  std::uint64_t prompt_tokens = 0;  // of requests that started
  std::uint64_t cached_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  Latencies latencies;  // of streams
  RecentLatency first_token, next_token, queued, whole;
  std::uint64_t bytes = 0;  // of the requests, prompts and answers of live streams

  std::uint64_t in(RequestState state) const { return in_state[static_cast<std::size_t>(state)]; }
  std::uint64_t waiting() const {
    return in(RequestState::received) + in(RequestState::encoding) + in(RequestState::queued);
  }
  bool has_work() const { return waiting() + in(RequestState::running) > 0; }
  void append_metrics(MetricList& metrics, TimePoint now) const;

  void stream_arrived() { ++in_state[static_cast<std::size_t>(RequestState::received)]; }
  void state_changed(RequestState from, RequestState to);
  // Also sets the times. Returns the latency that was counted, and its seconds.
  std::pair<Latency, double> tokens_emitted(StreamTimes& times, std::size_t num_tokens, TimePoint now);
  // `times` has the first token: counts the latencies. usage: as StreamTimes::fill() sets it.
  void stream_ended(const StreamTimes& times, const Usage& usage, TimePoint now);
};

// Since when a unit has had work, written under the stream table's lock. Read from any thread, without it.
class WorkClock {
 public:
  // When a stream of the unit last arrived, or got credit again, while no other of them was waiting or running;
  // nullopt while none is.
  [[nodiscard]] std::optional<TimePoint> since() const {
    const TimePoint since = since_;
    return since == kNoWork ? std::nullopt : std::optional(since);
  }
  void set(std::optional<TimePoint> since) { since_ = since.value_or(kNoWork); }

 private:
  static constexpr TimePoint kNoWork = TimePoint::max();
  std::atomic<TimePoint> since_{kNoWork};
  static_assert(std::atomic<TimePoint>::is_always_lock_free);
};

// Of the streams of one unit.
struct UnitCounts {
  StateMetrics states;
  TokenMetrics tokens;           // as those of StreamCounts
  std::uint64_t tool_calls = 0;  // in answers that have ended
};

// UnitCounts as they change.
class UnitStreams {
 public:
  void stream_arrived(TimePoint now);
  // One that has not been admitted is another unit's from now on. Returns what is to be called, with no lock held.
  [[nodiscard]] std::vector<std::function<void()>> stream_left();
  void state_changed(RequestState from, RequestState to);
  void granted(TimePoint now);
  void started(std::uint64_t prompt_tokens, std::uint64_t cached_tokens);
  void tokens_emitted(std::uint64_t num_tokens) { counts_.tokens.generated += num_tokens; }
  void called(std::uint64_t num_calls) { counts_.tool_calls += num_calls; }
  [[nodiscard]] const UnitCounts& counts() const { return counts_; }
  // When a stream last arrived; the earliest time if none has.
  [[nodiscard]] TimePoint last_arrival() const { return last_arrival_; }

  // Streams whose end was not passed to their sink yet. `done` is called once there is none.
  [[nodiscard]] bool is_empty() const { return ends_pending_ == 0; }
  void when_empty(std::function<void()> done) { when_empty_.push_back(std::move(done)); }
  // The end of one was passed on. Returns what is to be called, with no lock held.
  [[nodiscard]] std::vector<std::function<void()>> end_told() {
    if (--ends_pending_ > 0) return {};
    return std::exchange(when_empty_, {});
  }
  [[nodiscard]] const std::shared_ptr<WorkClock>& clock() const { return clock_; }

 private:
  [[nodiscard]] bool has_work() const { return counts_.states.waiting + counts_.states.running > 0; }
  void count(RequestState state, int change);
  void publish() { clock_->set(has_work() ? std::optional(work_since_) : std::nullopt); }

  UnitCounts counts_;
  TimePoint work_since_{};  // stays while all streams are parked
  TimePoint last_arrival_ = TimePoint::min();
  std::uint64_t ends_pending_ = 0;
  std::vector<std::function<void()>> when_empty_;
  const std::shared_ptr<WorkClock> clock_ = std::make_shared<WorkClock>();
};

}  // namespace troupe::actors
