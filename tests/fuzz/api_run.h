// What holds of any body of an HTTP request: a refusal that says something, or a call whose answer is JSON.
#pragma once

#include <string_view>

#include "ipc/http/api/endpoint.h"

namespace troupe::fuzz {

// Parses the body, and answers what is taken with pieces of it. Returns whether it was taken. Properties are asserted.
bool run_body(ipc::api::Endpoint endpoint, std::string_view body);

}  // namespace troupe::fuzz
