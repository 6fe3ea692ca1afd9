// The rules for a request's head that the parser does not hold. Plain functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "ipc/http/request.h"

namespace troupe::ipc::http {

// Checks the lines of a head so far, from byte `from` on: every line ends in CR LF, none begins with a space (a folded
// field), and there is no zero byte. A CR as the last byte waits for its LF. O(head.size() - from).
[[nodiscard]] std::optional<BadRequest> check_lines(std::string_view head, std::size_t from);

// Checks the length of the target, and the version.
[[nodiscard]] std::optional<BadRequest> check_request_line(std::string_view head);

// Checks the fields that say where the body ends, Host and the target, and fills in what follows from them. method,
// target, fields and is_http11 are set.
[[nodiscard]] std::optional<BadRequest> finish_head(RequestHead& head);

// Whether `text` is a host with an optional port: "localhost:8080", "[::1]", "".
[[nodiscard]] bool is_authority(std::string_view text);

// Whether one of the items of a list "a, b" is `token`, without regard to case.
[[nodiscard]] bool lists(std::string_view list, std::string_view token);

}  // namespace troupe::ipc::http
