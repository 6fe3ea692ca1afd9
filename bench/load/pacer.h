// Which request goes out next, and when: the two loops as plain logic. Times are arguments, in seconds since the start
// of the run; a driver asks next() until it gives nothing, sleeps until next_at() or an end, and reports each end.
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
  std::uint32_t client = 0;  // closed loop: whose; open loop with a bound: which of the slots; else 0
  double intended_s = 0;     // when it should have gone out: latencies count from here
};

// What is known of it before it is sent.
[[nodiscard]] RequestRecord begin_record(const Due& due, const PlannedRequest& request);

// Not thread-safe. Borrows the plan.
class Pacer {
 public:
  explicit Pacer(const Plan& plan);

  // The next request whose time has come by `now_s`, if any. In an open loop that is bounded (Pace::clients) a request
  // waits for a free slot and keeps its intended time. O(log clients).
  std::optional<Due> next(double now_s);
  // When next() will have something if no request ends before; absent: not before an end, or never.
  [[nodiscard]] std::optional<double> next_at() const;
  // Whether everything has been handed out, by number or by time.
  [[nodiscard]] bool exhausted() const;
  // Requests handed out that have not ended.
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }
  // The request of `client` has ended at `now_s`, whatever its end was.
  void ended(std::uint32_t client, double now_s);
  // Nothing more is handed out.
  void stop() { stopped_ = true; }

 private:
  // A client of a closed loop, or a slot of a bounded open one, and when it is free.
  struct Free {
    double at_s = 0;
    std::uint32_t client = 0;
    bool operator>(const Free& other) const { return at_s != other.at_s ? at_s > other.at_s : client > other.client; }
  };
  // By number, or by stop().
  [[nodiscard]] bool nothing_left() const;
  // Whether the first client of a closed loop to be free is free too late. (An open loop's arrivals end with its
  // duration already, and what has arrived is sent, however late.)
  [[nodiscard]] bool time_is_up() const;

  const Plan& plan_;
  bool bounded_;
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free_;  // earliest first
  std::uint64_t next_index_ = 0;
  std::uint64_t in_flight_ = 0;
  bool stopped_ = false;
};

}  // namespace troupe::load
