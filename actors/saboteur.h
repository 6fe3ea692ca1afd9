// Injects faults into a running server, for tests only.
//
//   TROUPE_TEST_KILL="period=2s,seed=1" troupe serve ...
//
// About every period (0.5 to 1.5 times, at random, so as not to be in phase with the server's own timers) one target is
// drawn from the seed: an actor throws at the next message it takes from its mailbox, or the next step throws.
// `targets=worker+step` limits the choice: names of kRoles (messages.h), and `step`.
#pragma once

#include <atomic>
#include <random>
#include <string_view>

#include "actors/gateway.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"
#include "config/result.h"

namespace troupe::actors {

// Sends the actor in this role a message at which it throws.
void crash_for_test(Gateway& gateway, Role role);

struct KillPlan {
  std::chrono::milliseconds period{0};
  std::uint64_t seed = 1;
  std::vector<std::optional<Role>> targets;  // nullopt: the next step
};

// Error: bad_config, with what is wrong in `text`.
[[nodiscard]] Result<KillPlan> parse_kill_plan(std::string_view text);

// Receives  its own timer
// Sends     msg::Crash to the supervisor
class Saboteur : public ActorBase {
 public:
  // break_step: set to make the next step throw.
  Saboteur(caf::actor_config& cfg, KillPlan plan, caf::actor supervisor, std::shared_ptr<std::atomic<bool>> break_step);

  caf::behavior make_behavior() override;
  void on_exit() override { supervisor_ = nullptr; }

 private:
  void break_target();
  void set_timer();

  const KillPlan plan_;
  caf::actor supervisor_;
  const std::shared_ptr<std::atomic<bool>> break_step_;
  std::mt19937_64 random_;
};

}  // namespace troupe::actors
