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
#include <utility>
#include <vector>

#include "actors/requests/status_snapshot.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"
#include "actors/unit/server_context.h"
#include "actors/unit/unit_parts.h"

namespace troupe::actors {

// Whether the unit's model serves.
[[nodiscard]] ModelHealth health_of(const ServerContext& server, const UnitParts& unit, TimePoint now);

// How a model counts for its server: one that is loaded on request serves, however it is, unless it has failed.
[[nodiscard]] Readiness counted_as(Readiness of_model, bool on_request);
// How the models of a server are together, each as counted_as(). With any that is ready the server is; while none is,
// it is loading as long as one is; then draining if one is, else failed.
[[nodiscard]] Readiness readiness_of(const std::vector<Readiness>& models);

// units: all, the default one first: its model, steps and cache are those that the status describes. The counters of
// the others have their model's name as a label. Does no I/O: the memory is that of the last survey.
[[nodiscard]] StatusSnapshot take_snapshot(const ServerContext& server,
                                           const std::vector<std::shared_ptr<const UnitParts>>& units, TimePoint now);

// A status query on its way through all units. Thread-safe.
class StatusQuery {
 public:
  // done: called exactly once, when the last of the units has counted everything. units: not empty. The server outlives
  // the query.
  StatusQuery(const ServerContext& server, std::vector<std::shared_ptr<const UnitParts>> units,
              std::function<void(StatusSnapshot)> done)
      : server_(server), units_(std::move(units)), done_(std::move(done)), num_left_(units_.size()) {}
  StatusQuery(const StatusQuery&) = delete;
  StatusQuery& operator=(const StatusQuery&) = delete;

  // A unit has counted everything that the asking client knows of, or its telemetry is dead: once for each. The last
  // call answers; the caller holds no lock.
  void counted() {
    if (num_left_.fetch_sub(1) == 1) done_(take_snapshot(server_, units_, std::chrono::steady_clock::now()));
  }

 private:
  const ServerContext server_;
  const std::vector<std::shared_ptr<const UnitParts>> units_;
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
