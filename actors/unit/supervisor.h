// Starts the actors of a unit and restarts those that die. No request passes through it; an exception in it ends the
// process.
//
// A dead actor is restarted, each tokenizer on its own. When the keeper or the target worker dies, the batcher is
// stopped and restarted too, since its state refers to theirs. A new batcher begins a new epoch, waits until the worker
// has finished the last step of the old one, and gets every live request from the intake. Clients see a pause. Too many
// deaths without a step between them (kMaxRestarts) end every stream of the unit with Outcome::worker_lost, and its
// service.
//
// Receives  msg::BeginLoad              starts the loader, if the load was to wait
//           msg::ModelLoaded            starts the actors that need a model
//           msg::Drain, msg::Unload     ends the streams that are live when its timeout has passed, which
//                                       msg::DrainTimeout and msg::UnloadTimeout, to itself, say
//           msg::TakeOut                ends its streams and its service
//           msg::Restart                to itself: starts what has died
//           msg::Crash                  passed on, for tests
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"
#include "actors/unit/server_context.h"
#include "actors/unit/unit_parts.h"

namespace troupe::actors {

// At most this many actor deaths in a row are answered by a restart while work waits and no step ends between them; one
// more ends the service of the model. While steps end, actors are restarted without limit.
inline constexpr std::size_t kMaxRestarts = 5;
// Delay from an actor's death to its restart: doubled with each death, back to the shortest after kQuietTime without
// one.
inline constexpr std::chrono::milliseconds kShortestRestartDelay{10};
inline constexpr std::chrono::milliseconds kLongestRestartDelay{1000};
inline constexpr std::chrono::seconds kQuietTime{1};

class Supervisor : public ActorBase {
 public:
  // load: as Loader's; empty: the model is loaded elsewhere (tests). load_waits: until msg::BeginLoad.
  // owner: of the unit; its actors share ownership.
  Supervisor(caf::actor_config& cfg, const ServerContext& server, UnitParts& unit, std::shared_ptr<const void> owner,
             std::function<void(engine::Team&)> load, bool load_waits);

  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  // An actor of the unit: whether the unit has one now, and how it is made.
  struct Part {
    Role role;
    bool (Supervisor::*is_wanted)() const;
    caf::actor (Supervisor::*make)();
  };
  static const std::array<Part, kNumRoles> kParts;  // by role

  caf::actor& child(Role role) { return children_[static_cast<std::size_t>(role)]; }
  void child_died(const caf::down_msg& down);
  void restart_soon();
  bool start_tokenizers();
  void start_missing();
  void set_child(Role role, caf::actor actor);
  void start_child(Role role);
  void wire_intake();

  bool is_always_wanted() const { return true; }
  bool wants_loader() const { return load_ && !load_waits_ && unit_.model.loading(); }
  bool wants_language_model() const { return model_ready_ && unit_.model.model()->language_model(); }
  bool wants_draft_model() const { return model_ready_ && unit_.model.model()->draft_model(); }
  bool wants_model() const { return model_ready_; }
  caf::actor make_telemetry();
  caf::actor make_intake();
  caf::actor make_loader();
  caf::actor make_keeper();
  caf::actor make_worker();
  caf::actor make_drafter();
  caf::actor make_batcher();
  caf::actor make_embedder();

  void pass_on(Role role, const caf::message& message);
  void end_all(const End& how);
  void stop_service();
  void end_service(const End& how);

  template <class Child, class... Arguments>
  caf::actor spawn_child(Arguments&&... arguments) {
    caf::actor child = spawn<Child>(std::forward<Arguments>(arguments)...);
    share_ownership(child, owner_);
    return child;
  }

  std::shared_ptr<const void> owner_;
  const ServerContext server_;
  UnitParts& unit_;
  std::function<void(engine::Team&)> load_;
  bool load_waits_;
  std::array<caf::actor, kNumRoles> children_;
  std::vector<caf::actor> tokenizers_;
  std::size_t num_deaths_ = 0;       // in a row, without a step between them
  std::uint64_t progress_seen_ = 0;  // Counters::num_ended() at the last death
  TimePoint last_death_;
  std::chrono::milliseconds restart_delay_{0};
  std::uint64_t epoch_ = 0;
  bool keeper_started_ = false;  // a keeper has run before and may have given out blocks
  bool model_ready_ = false;
  bool restart_pending_ = false;
  bool gave_up_ = false;
};

}  // namespace troupe::actors
