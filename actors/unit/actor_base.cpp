#include "actors/unit/actor_base.h"

#include <spdlog/spdlog.h>

#include <exception>

#include "actors/requests/failure.h"

namespace troupe::actors {

ActorBase::ActorBase(caf::actor_config& cfg, const char* name) : event_based_actor(cfg), name_(name) {
  // Neither handler prints the message itself: it may contain a user's prompt.
  set_default_handler([this](caf::scheduled_actor*, caf::message_view&) -> caf::result<caf::message> {
    spdlog::error("{}: got a message it does not know", name_);
    return caf::make_error(caf::sec::unexpected_message);
  });
  set_error_handler([this](caf::error& error) {
    spdlog::warn("{}: a request went unanswered: {}", name_, home_system().render(error));
  });
  set_exception_handler([this](std::exception_ptr& thrown) -> caf::error {
    const Failure why = failure_of(thrown);
    spdlog::error("{}: ended by an exception: {}", name_, why.what);
    // Our own work catches std::bad_alloc. One that arrives here was thrown inside CAF while it delivered a message,
    // and the receiver may never be scheduled again: only a new process helps.
    if (why.out_of_memory) std::terminate();
    return caf::sec::runtime_error;
  });
}

}  // namespace troupe::actors
