// Reads requests of HTTP/1.1 from the bytes of a connection. The parser is Boost.Beast's; what it lets pass and a proxy
// in front might read differently is refused before (request smuggling: RFC 9112, section 11.2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ipc/http/request.h"

namespace troupe::ipc::http {

// Not thread-safe. However the bytes are cut, the result is the same.
//
// Refused with 400: bare CR or LF, a folded field, a space before a colon, a wrong field, target, Host or version,
// Content-Length twice, not in digits or beside Transfer-Encoding, a wrong chunk, no Host in HTTP/1.1; 413: a body
// above max_body_bytes; 414: a target above kMaxTargetBytes; 417: an expectation but 100-continue; 431: above
// kMaxHeaderBytes or kMaxFields; 501: a transfer coding but chunked; 505: another version than 1.0 and 1.1.
class RequestReader {
 public:
  enum class Stage {
    idle,      // no byte of a request has come
    header,    // the head is incomplete
    head,      // the head is complete; push() uses nothing until read_body()
    body,      // the body is incomplete
    complete,  // take() has the request
    failed,    // error() says why; nothing is read any more
  };

  explicit RequestReader(std::uint64_t max_body_bytes);
  ~RequestReader();

  // Reads until the head or the request is complete; returns how many of the bytes it used: all of them in the stages
  // idle, header and body. Memory: the head's or the body's bytes, and kMaxChunkLineBytes. Allocates nothing that the
  // client only announces.
  std::size_t push(std::string_view bytes);

  Stage stage() const;
  // From the stage `head` on.
  const RequestHead& head() const;
  // From the stage `head` to `body`, or to `complete` if there is no body.
  void read_body();
  // Bytes of the body so far.
  std::size_t body_bytes() const;
  // Reserves memory for a body whose length is announced; pages are touched only as bytes arrive.
  void reserve_body();
  // In the stage `complete`: the request; the reader is idle then.
  Request take();
  const BadRequest& error() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::ipc::http
