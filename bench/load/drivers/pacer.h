// Decides which request is sent next, and when, for open and closed loops. Plain logic: times are arguments, in seconds
// since the start of the run. A driver calls next() until it returns nullopt, sleeps until next_at() or an end, and
// reports each end.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "bench/load/plan.h"
#include "bench/load/record.h"

namespace troupe::load {

// A request to be sent now.
struct Due {
  std::uint64_t index = 0;
  std::uint32_t client = 0;  // closed loop: the client; bounded open loop: the slot; else 0
  double intended_s = 0;     // when it should be sent: latencies count from here
};

// The record of a request with the fields that are known before it is sent.
[[nodiscard]] RequestRecord begin_record(const Due& due, const PlannedRequest& request);

// Not thread-safe. Borrows the plan.
class Pacer {
 public:
  explicit Pacer(const Plan& plan);

  // The next request that is due at `now_s`, if any. In a bounded open loop (Pace::clients) a request waits for a free
  // slot and keeps its intended time. O(log clients).
  std::optional<Due> next(double now_s);
  // When next() will return a request if none ends before; absent: not before an end, or never.
  [[nodiscard]] std::optional<double> next_at() const;
  // Whether next() will never return a request again.
  [[nodiscard]] bool exhausted() const;
  // Requests returned by next() that have not ended.
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }
  // The request of `client` has ended at `now_s`, with any outcome.
  void ended(std::uint32_t client, double now_s);
  // From now on next() returns nullopt.
  void stop() { stopped_ = true; }

 private:
  // A client of a closed loop, or a slot of a bounded open one, and when it is free.
  struct Free {
    double at_s = 0;
    std::uint32_t client = 0;
    bool operator>(const Free& other) const { return at_s != other.at_s ? at_s > other.at_s : client > other.client; }
  };
  // stop() was called, or all requests of the plan have been returned.
  [[nodiscard]] bool nothing_left() const;
  // Whether the earliest free client of a closed loop is free only after the run's duration. (An open loop's arrivals
  // end with its duration, and a request that has arrived is sent, however late.)
  [[nodiscard]] bool time_is_up() const;

  const Plan& plan_;
  bool bounded_;
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free_;  // earliest first
  std::uint64_t next_index_ = 0;
  std::uint64_t in_flight_ = 0;
  bool stopped_ = false;
};

}  // namespace troupe::load
