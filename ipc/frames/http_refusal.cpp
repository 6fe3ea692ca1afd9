#include "ipc/frames/http_refusal.h"

#include <algorithm>
#include <array>

namespace troupe::ipc {

bool begins_http(std::string_view bytes) {
  constexpr std::array<std::string_view, 9> kMethods = {"GET ", "POST", "PUT ", "HEAD", "OPTI",
                                                        "DELE", "PATC", "CONN", "TRAC"};
  return std::any_of(kMethods.begin(), kMethods.end(),
                     [&](std::string_view method) { return bytes.starts_with(method); });
}

std::string http_refusal(std::string_view request) {
  const std::string body =
      "This socket speaks troupe's own protocol, frames of protobuf, and no HTTP. Use `troupe run` and `troupe "
      "status`, "
      "the client library (ipc/client/client.h), or any language with protobuf (docs/protocol.md).\n";
  return "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + (request.starts_with("HEAD") ? "" : body);
}

}  // namespace troupe::ipc
