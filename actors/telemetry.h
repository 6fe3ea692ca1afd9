// Answers status queries within milliseconds, also during a step: it reads counters that the other actors keep up to
// date. Before reading it sends a msg::Fence through them, so that every event the client already knows of is counted.
//
// Receives  msg::Snapshot -> drops its query, which is answered by that: once the fence is back, or after kFenceTimeout
// (an actor died)
//           msg::Fenced   the fence is back, or kFenceTimeout has passed
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

#include "actors/actor_base.h"
#include "actors/messages.h"

namespace troupe::actors {

inline constexpr std::chrono::milliseconds kFenceTimeout{100};

class Telemetry : public ActorBase {
 public:
  explicit Telemetry(caf::actor_config& cfg);

  caf::behavior make_behavior() override;
  void on_exit() override { asked_.clear(); }

 private:
  void ask(const msg::Snapshot& snapshot);
  void answer(std::uint64_t number);

  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, msg::Snapshot> asked_;
};

}  // namespace troupe::actors
