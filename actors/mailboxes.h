// The addresses of a unit's actors, for senders outside of the unit.
#pragma once

#include <array>
#include <caf/all.hpp>
#include <mutex>
#include <utility>

#include "actors/messages.h"

namespace troupe::actors {

// Thread-safe. The supervisor sets an address before it tells the intake of a new actor, and the intake then reads the
// stream table: so a message that still goes to a dead actor, or to none, need not arrive. What it reports is in the
// table already.
class Mailboxes {
 public:
  void set(Role role, caf::actor actor) {
    const std::lock_guard lock(mutex_);
    actors_[static_cast<std::size_t>(role)] = std::move(actor);
  }
  caf::actor get(Role role) const {  // null: there is none now
    const std::lock_guard lock(mutex_);
    return actors_[static_cast<std::size_t>(role)];
  }
  template <class Message>
  void send(Role role, Message message) const {
    if (const caf::actor to = get(role)) caf::anon_send(to, std::move(message));
  }

 private:
  mutable std::mutex mutex_;
  std::array<caf::actor, kNumRoles> actors_;
};

}  // namespace troupe::actors
