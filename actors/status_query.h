// A question for the server's counters on its way to telemetry.
#pragma once

#include <functional>
#include <utility>

#include "actors/gateway.h"
#include "actors/house.h"

namespace troupe::actors {

[[nodiscard]] StatusSnapshot take_snapshot(const House& house, TimePoint now);

// Calls `done` exactly once: in answer(), or when the last who had the question is gone, as when telemetry dies with
// it in its hands. Shared between actors, but at any time only one of them may answer.
class StatusQuery {
 public:
  // What the house refers to outlives the query, but for its pools of threads, which are not asked.
  StatusQuery(const House& house, std::function<void(StatusSnapshot)> done) : house_(house), done_(std::move(done)) {}
  ~StatusQuery() { answer(std::chrono::steady_clock::now()); }
  StatusQuery(const StatusQuery&) = delete;
  StatusQuery& operator=(const StatusQuery&) = delete;

  void answer(TimePoint now) {
    if (const auto done = std::exchange(done_, nullptr)) done(take_snapshot(house_, now));
  }

 private:
  const House house_;
  std::function<void(StatusSnapshot)> done_;
};

}  // namespace troupe::actors
