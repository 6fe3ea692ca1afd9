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

// An actor that shares ownership of what it refers to: until the actor is destroyed, the unit that it belongs to is
// there.
class OwnerReference {
 public:
  explicit OwnerReference(std::shared_ptr<const void> owner) : owner_(std::move(owner)) {}

 private:
  const std::shared_ptr<const void> owner_;
};
template <class Actor>
class Owned final : private OwnerReference, public Actor {  // in this order: the reference goes last
 public:
  template <class... Arguments>
  Owned(caf::actor_config& cfg, std::shared_ptr<const void> owner, Arguments&&... arguments)
      : OwnerReference(std::move(owner)), Actor(cfg, std::forward<Arguments>(arguments)...) {}
};

}  // namespace troupe::actors
