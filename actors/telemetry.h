// Answers status queries within milliseconds, also during a step: it reads counters that the other actors keep up to
// date. Before reading it sends a msg::Fence through them, so that every event the client already knows of is counted.
//
// Receives  msg::Snapshot -> drops its query, which is answered by that: once the fence is back, or after kFenceTimeout
// (an actor died)
//           msg::Fenced   the fence is back, or kFenceTimeout has passed
#pragma once

#include <functional>
#include <map>

#include "actors/actor_base.h"
#include "actors/messages.h"
#include "actors/server_context.h"
#include "actors/status_snapshot.h"

namespace troupe::actors {

// unit: the one whose model, steps and cache the status describes. Does no I/O: the memory is that of the last survey.
[[nodiscard]] StatusSnapshot take_snapshot(const UnitContext& unit, TimePoint now);

// A status query on its way. Calls `done` exactly once, when its last owner drops it: telemetry of the last unit that
// has counted everything, or has died.
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

inline constexpr std::chrono::milliseconds kFenceTimeout{100};

class Telemetry : public ActorBase {
 public:
  explicit Telemetry(caf::actor_config& cfg);

  caf::behavior make_behavior() override;
  void on_exit() override { asked_.clear(); }

 private:
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, msg::Snapshot> asked_;
};

}  // namespace troupe::actors
