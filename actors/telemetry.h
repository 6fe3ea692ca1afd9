// Answers how the server does. It reads counters that the other actors keep up to date, so it answers at once,
// whatever is being computed.
//
// Receives  msg::Snapshot -> calls its callback
#pragma once

#include "actors/actor_base.h"
#include "actors/house.h"
#include "actors/messages.h"

namespace troupe::actors {

class Telemetry : public ActorBase {
 public:
  Telemetry(caf::actor_config& cfg, const House& house);

  caf::behavior make_behavior() override;

 private:
  const House house_;
};

[[nodiscard]] StatusSnapshot take_snapshot(const House& house, TimePoint now);

}  // namespace troupe::actors
