// Functions on a running gateway for tests only.
#pragma once

#include "actors/gateway.h"
#include "actors/messages.h"

namespace troupe::actors {

// Sends the actor in this role a message at which it throws.
void crash_for_test(Gateway& gateway, Role role);

}  // namespace troupe::actors
