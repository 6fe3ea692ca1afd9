// A status query on its way to telemetry.
#pragma once

#include <functional>
#include <utility>

#include "actors/server_context.h"
#include "actors/status/memory_ledger.h"
#include "actors/status_snapshot.h"

namespace troupe::actors {

// unit: the one whose model, steps and cache the status describes. Does no I/O: the memory is that
// of the last survey.
[[nodiscard]] StatusSnapshot take_snapshot(const UnitContext& unit, TimePoint now);

// Calls `done` exactly once, when its last owner drops it: telemetry of the last unit that has counted everything, or
// has died.
class StatusQuery {
 public:
  // The unit outlives the query.
  StatusQuery(const UnitContext& unit, std::function<void(StatusSnapshot)> done)
      : unit_(unit), done_(std::move(done)) {}
  ~StatusQuery() { done_(take_snapshot(unit_, std::chrono::steady_clock::now())); }
  StatusQuery(const StatusQuery&) = delete;
  StatusQuery& operator=(const StatusQuery&) = delete;

 private:
  const UnitContext& unit_;
  std::function<void(StatusSnapshot)> done_;
};

}  // namespace troupe::actors
