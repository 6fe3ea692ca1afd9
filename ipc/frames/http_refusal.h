// The answer to an HTTP client that has come to a socket on which frames are spoken.
#pragma once

#include <string>
#include <string_view>

namespace troupe::ipc {

// Whether `bytes` begin as an HTTP request does: the first four bytes are those of a method. False while there are
// fewer.
[[nodiscard]] bool begins_http(std::string_view bytes);

// A whole HTTP/1.1 response, 400, that says what this socket speaks and what to use instead; the server closes the
// connection after it. `request` is what came so far: the answer to HEAD has no body.
[[nodiscard]] std::string http_refusal(std::string_view request);

}  // namespace troupe::ipc
