// Loads the model of a unit: posts the load to the thread that loads models (Compute::post_load), and reports its end.
// If it dies meanwhile, the load goes on; the next loader's then finds the model loaded.
//
// Receives  msg::LoadEnded  from its load
// Sends     msg::ModelLoaded to the supervisor
#pragma once

#include "actors/threads/compute_pool.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"

namespace troupe::actors {

class Loader : public ActorBase {
 public:
  // load: loads the model unless it is loaded already; throws engine::Stopped only.
  Loader(caf::actor_config& cfg, Compute& compute, std::function<void(engine::Team&)> load, caf::actor supervisor)
      : ActorBase(cfg, "loader"), compute_(compute), load_(std::move(load)), supervisor_(std::move(supervisor)) {}

  caf::behavior make_behavior() override {
    compute_.post_load([load = load_, self = caf::actor{this}](engine::Team& team) {
      try {
        load(team);
      } catch (const engine::Stopped&) {
        return;  // the server ends
      }
      caf::anon_send(self, msg::LoadEnded{});
    });
    return {
        [this](const msg::LoadEnded&) {
          send(supervisor_, msg::ModelLoaded{});
          quit();
        },
        msg::throw_for_test,
    };
  }
  void on_exit() override {
    supervisor_ = nullptr;
    load_ = nullptr;
  }

 private:
  Compute& compute_;
  std::function<void(engine::Team&)> load_;
  caf::actor supervisor_;
};

}  // namespace troupe::actors
