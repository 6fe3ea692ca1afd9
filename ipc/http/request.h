// A request of HTTP/1.1 as it was read, and why one is refused. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::ipc::http {

// Limits of one request.
inline constexpr std::size_t kMaxHeaderBytes = 32u << 10;  // request line and fields
inline constexpr std::size_t kMaxFields = 100;
inline constexpr std::size_t kMaxTargetBytes = 8u << 10;
inline constexpr std::size_t kMaxChunkLineBytes = 4u << 10;  // of one chunk's size and extensions

struct Field {
  std::string name;  // in lower case
  std::string value;
};

// What comes before the body.
struct RequestHead {
  std::string method;  // "GET"
  std::string target;  // as it was sent
  std::string path;    // "/v1/models"; "*" for OPTIONS of the whole server. Percent signs are left as they came
  std::string query;   // what follows '?'
  std::string host;    // the authority that is asked: the Host field, or that of an absolute target; may be empty
  std::vector<Field> fields;
  bool is_http11 = true;
  bool keep_alive = true;               // the connection may go on after the answer
  bool expects_continue = false;        // the client waits for "100 Continue" before it sends the body
  bool has_body = false;                // a body of at least one byte, or a chunked one
  std::optional<std::uint64_t> length;  // of the body, if the client says it

  // The value of the first field with this name (in lower case), or null. O(number of fields).
  [[nodiscard]] const std::string* find(std::string_view name) const {
    for (const Field& field : fields)
      if (field.name == name) return &field.value;
    return nullptr;
  }
};

struct Request {
  RequestHead head;
  std::string body;
};

// Why a request cannot be read. The connection ends after the answer: where the next request begins is not known.
struct BadRequest {
  int status = 400;
  std::string message;
};

}  // namespace troupe::ipc::http
