// Starts the other actors and replaces those that die. The root of the actor system; it never dies itself.
//
// Who is restarted: an actor that died, a tokenizer among several like any other. With the keeper or the worker the
// batcher goes too, since it knew what they held; a new batcher begins a new epoch, waits for the last step of the old
// one through the worker, and gets every live request from the intake. Clients see a pause. Too many deaths
// without a step between them (kMaxRestarts) end every stream with Outcome::worker_lost, and the service with it.
//
// Receives  msg::Submit, msg::Snapshot  passed on
//           msg::Cancel                 ends the stream, and tells whoever works for it
//           msg::Credit                 passed on to the batcher
//           msg::ModelLoaded            starts what needs a model
//           msg::Drain                  ends what is left once the time is up
//           msg::Crash                  passed on, for tests
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/actor_base.h"
#include "actors/messages.h"
#include "actors/server_context.h"

namespace troupe::actors {

class Supervisor : public ActorBase {
 public:
  Supervisor(caf::actor_config& cfg, const ServerContext& context);

  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  caf::actor& child(Role role) { return children_[static_cast<std::size_t>(role)]; }
  TimePoint now();
  void child_died(const caf::down_msg& down);
  void restart_soon();
  bool start_tokenizers();
  void start_missing();
  caf::actor start(Role role);
  void wire_intake();
  void pass_on(Role role, const caf::message& message);
  void cancel(const msg::Cancel& cancel);
  void end_all(const End& how);
  void stop_service();

  const ServerContext context_;
  std::array<caf::actor, kNumRoles> children_;
  std::vector<caf::actor> tokenizers_;
  std::size_t num_deaths_ = 0;    // in a row, without progress
  std::uint64_t steps_seen_ = 0;  // that had ended at the last death
  TimePoint last_death_;
  std::chrono::milliseconds restart_delay_{0};
  std::uint64_t epoch_ = 0;
  bool keeper_started_ = false;  // one gave out blocks before
  bool model_ready_ = false;
  bool restart_pending_ = false;
  bool gave_up_ = false;
};

}  // namespace troupe::actors
