// What only tests ask of a running gateway.
#pragma once

#include "actors/gateway.h"
#include "actors/messages.h"

namespace troupe::actors {

// Makes the actor in this role throw, once it comes to that message.
void crash_for_test(Gateway& gateway, Role role);

}  // namespace troupe::actors
