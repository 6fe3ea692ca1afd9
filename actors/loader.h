// Loads the model of a unit: posts the loading as a job of the compute pool, whose team packs the weights, and reports
// its end. If it dies meanwhile, the job goes on; the next loader's job then finds the model loaded.
//
// Receives  msg::LoadEnded  from its job
// Sends     msg::ModelLoaded to the supervisor
#pragma once

#include "actors/actor_base.h"
#include "actors/messages.h"
#include "actors/server_context.h"

namespace troupe::actors {

class Loader : public ActorBase {
 public:
  Loader(caf::actor_config& cfg, const UnitContext& context, caf::actor supervisor)
      : ActorBase(cfg, "loader"), context_(context), supervisor_(std::move(supervisor)) {}

  caf::behavior make_behavior() override {
    context_.compute.post([load = context_.load, self = caf::actor{this}] {
      try {
        load();
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
  void on_exit() override { supervisor_ = nullptr; }

 private:
  const UnitContext context_;
  caf::actor supervisor_;
};

}  // namespace troupe::actors
