// Converts a server's Status to the types of the client library. Only for client.cpp.
#pragma once

#include "ipc/client/client.h"
#include "ipc/troupe.pb.h"

namespace troupe::client {

[[nodiscard]] ServerStatus to_status(const v1::Status& in, const Health& health);

}  // namespace troupe::client
