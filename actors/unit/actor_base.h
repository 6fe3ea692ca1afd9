// The base of all our actors: an unexpected message or an error message is logged and does not end the actor.
//
// CAF's default handlers would print to stdout, or end an actor when its request gets no answer. Here only an exception
// ends an actor, and the supervisor restarts it. std::bad_alloc ends the process (std::terminate).
#pragma once

#include <caf/all.hpp>
#include <memory>
#include <utility>

#include "actors/requests/request.h"

namespace troupe::actors {

class ActorBase : public caf::event_based_actor {
 public:
  // name: a string literal, for the log.
  ActorBase(caf::actor_config& cfg, const char* name);

  const char* name() const override { return name_; }

 protected:
  TimePoint now() { return home_system().clock().now(); }
  // The sender of the message that is being handled.
  caf::actor sender() { return caf::actor_cast<caf::actor>(current_sender()); }

 private:
  const char* name_;
};

// The actor shares ownership until it has ended: what it refers to stays until its last handler has returned. Not until
// it is destroyed, as a timer that runs still keeps the actor.
inline void share_ownership(const caf::actor& actor, std::shared_ptr<const void> owner) {
  caf::actor_cast<caf::abstract_actor*>(actor)->attach_functor([owner = std::move(owner)] {});
}

}  // namespace troupe::actors
