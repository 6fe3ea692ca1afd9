// The deadlines of live streams, by unit.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/requests/request.h"

namespace troupe::actors {

// Not thread-safe. A stream that is added is removed again with the values that it was added with.
class Deadlines {
 public:
  // Returns when the time is over. Longer than a hundred years is cut to that, so that the clock does not overflow.
  TimePoint add(UnitId unit, RequestId request, TimePoint submitted, std::chrono::milliseconds time) {
    const TimePoint deadline =
        submitted + std::min<std::chrono::milliseconds>(time, std::chrono::hours(24 * 365 * 100));
    by_unit_[unit].emplace(deadline, request);
    return deadline;
  }
  // The stream is the other unit's from now on.
  void move(UnitId from, UnitId to, RequestId request, TimePoint deadline) {
    remove(from, request, deadline);
    by_unit_[to].emplace(deadline, request);
  }
  void remove(UnitId unit, RequestId request, TimePoint deadline) { by_unit_[unit].erase({deadline, request}); }

  // The unit's earliest deadline.
  [[nodiscard]] std::optional<TimePoint> next(UnitId unit) const {
    const auto found = by_unit_.find(unit);
    if (found == by_unit_.end() || found->second.empty()) return std::nullopt;
    return found->second.begin()->first;
  }
  // The unit's streams whose deadline is at or before `now`, earliest first.
  [[nodiscard]] std::vector<RequestId> due(UnitId unit, TimePoint now) const {
    std::vector<RequestId> ids;
    const auto found = by_unit_.find(unit);
    if (found == by_unit_.end()) return ids;
    for (const auto& [deadline, id] : found->second) {
      if (deadline > now) break;
      ids.push_back(id);
    }
    return ids;
  }

 private:
  std::map<UnitId, std::set<std::pair<TimePoint, RequestId>>> by_unit_;
};

}  // namespace troupe::actors
