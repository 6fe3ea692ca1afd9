// What all our actors have in common: they survive a stray message or error, and say so in the log.
//
// CAF's own handlers would print to stdout, or end the actor whose request went unanswered. Here only an
// exception ends an actor; its supervisor hears of it and restarts it. std::bad_alloc ends the process
// (std::terminate).
#pragma once

#include <caf/all.hpp>

namespace troupe::actors {

class ActorBase : public caf::event_based_actor {
 public:
  // name: a string literal, for the log.
  ActorBase(caf::actor_config& cfg, const char* name);

  const char* name() const override { return name_; }

 private:
  const char* name_;
};

}  // namespace troupe::actors
