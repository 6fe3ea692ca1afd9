// Names of requests and of answers.
#pragma once

#include <cstddef>
#include <string>

#include "ipc/http/request.h"

namespace troupe::ipc::http {

inline constexpr std::size_t kMaxRequestIdBytes = 128;

// 24 letters and digits, different for every request of every server. From the io thread.
[[nodiscard]] std::string new_id();
// The X-Request-Id that every answer to the request repeats: the client's own, if it is 1 to kMaxRequestIdBytes
// letters, digits and "-_.:/+=@", else a new one.
[[nodiscard]] std::string request_id(const RequestHead& head);

}  // namespace troupe::ipc::http
