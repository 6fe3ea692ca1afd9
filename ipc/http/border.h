// Which requests of browsers are let in over TCP. A page of any site can send requests to a server on the same machine;
// Host and Origin, which the browser sets, tell them apart. Plain functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/http/request.h"

namespace troupe::ipc::http {

struct BorderRules {
  std::vector<std::string> allow_hosts{};   // besides localhost, 127.0.0.1 and [::1]; without port, in lower case
  std::vector<std::string> cors_origins{};  // "https://example.org": pages of these sites may ask; "*": of every site
};

// Refuses (421) a request for a host that is not ours: the name of an attacker's site can be made to lead to this
// machine (DNS rebinding). HTTP/1.0 without Host passes: no browser sends it.
[[nodiscard]] std::optional<BadRequest> check_host(const RequestHead& head, const BorderRules& rules);
// Refuses (403) a request of a page that is neither ours nor of a listed origin.
[[nodiscard]] std::optional<BadRequest> check_origin(const RequestHead& head, const BorderRules& rules);
// The fields that let a page of a listed origin read the answer; for an answer to OPTIONS also those that let it ask.
[[nodiscard]] std::vector<Field> cors_fields(const RequestHead& head, const BorderRules& rules);

// The text as it is listed in allow_hosts; nullopt: it is no host without a port.
[[nodiscard]] std::optional<std::string> host_name(std::string_view text);
// Whether the text may be listed in cors_origins: "*", or scheme, host and optional port.
[[nodiscard]] bool is_origin(std::string_view text);

}  // namespace troupe::ipc::http
