#include "actors/loader.h"

#include <utility>

namespace troupe::actors {

Loader::Loader(caf::actor_config& cfg, const UnitContext& context, caf::actor supervisor)
    : ActorBase(cfg, "loader"), context_(context), supervisor_(std::move(supervisor)) {}

caf::behavior Loader::make_behavior() {
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

}  // namespace troupe::actors
