// The counters of a StreamTable, and how events change them. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  Latencies latencies;      // of streams
  std::uint64_t bytes = 0;  // of the requests, prompts and answers of live streams
  TimePoint work_since;     // when a stream last arrived, or got credit again, while no other was waiting or running

  std::uint64_t in(RequestState state) const { return in_state[static_cast<std::size_t>(state)]; }
  std::uint64_t waiting() const {
    return in(RequestState::received) + in(RequestState::encoding) + in(RequestState::queued);
  }
  bool has_work() const { return waiting() + in(RequestState::running) > 0; }
  void append_metrics(MetricList& metrics) const;

  void stream_arrived(TimePoint now);
  void state_changed(RequestState from, RequestState to);
  // Also sets the times. Returns the latency that was counted, and its seconds.
  std::pair<Latency, double> tokens_emitted(StreamTimes& times, std::size_t num_tokens, TimePoint now);
  // `times` has the first token: counts the latencies. usage: as StreamTimes::fill() sets it.
  void stream_ended(const StreamTimes& times, const Usage& usage, TimePoint now);
};

}  // namespace troupe::actors
