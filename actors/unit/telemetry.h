// Answers status queries within milliseconds, also during a step: it reads counters that the other actors keep up to
// date. Before reading it sends a msg::Fence through them, so that every event the client already knows of is counted.
//
// Receives  msg::Snapshot -> answers its query (UnitQuestions) once the fence is back, or after kFenceTimeout, as when
//                            an actor died
//           msg::Fenced   the fence is back, or kFenceTimeout has passed
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "actors/requests/status_snapshot.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"
#include "actors/unit/server_context.h"
#include "actors/unit/unit_parts.h"

namespace troupe::actors {

// unit: the one whose model, steps and cache the status describes. Does no I/O: the memory is that of the last survey.
[[nodiscard]] StatusSnapshot take_snapshot(const ServerContext& server, const UnitParts& unit, TimePoint now);

// A status query on its way through all units. Thread-safe.
class StatusQuery {
 public:
  // done: called exactly once, when the last of num_units has counted everything. Server and unit outlive the query.
  StatusQuery(const ServerContext& server, const UnitParts& unit, std::function<void(StatusSnapshot)> done,
              std::size_t num_units = 1)
      : server_(server), unit_(unit), done_(std::move(done)), num_left_(num_units) {}
  StatusQuery(const StatusQuery&) = delete;
  StatusQuery& operator=(const StatusQuery&) = delete;

  // A unit has counted everything that the asking client knows of, or its telemetry is dead: once for each. The last
  // call answers; the caller holds no lock.
  void counted() {
    if (num_left_.fetch_sub(1) == 1) done_(take_snapshot(server_, unit_, std::chrono::steady_clock::now()));
  }

 private:
  const ServerContext server_;
  const UnitParts& unit_;
  const std::function<void(StatusSnapshot)> done_;
  std::atomic<std::size_t> num_left_;
};

inline constexpr std::chrono::milliseconds kFenceTimeout{100};

class Telemetry : public ActorBase {
 public:
  // questions: outlives the actor.
  Telemetry(caf::actor_config& cfg, UnitQuestions& questions);

  caf::behavior make_behavior() override;

 private:
  UnitQuestions& questions_;
};

}  // namespace troupe::actors
