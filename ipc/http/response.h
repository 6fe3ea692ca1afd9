// An answer, and its bytes. Plain.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/frames/wire.h"
#include "ipc/http/api/error.h"
#include "ipc/http/request.h"
#include "scheduler/outcome.h"

namespace troupe::ipc::http {

struct Response {
  int status = 200;
  std::string content_type = "application/json";  // empty: there is no body
  std::string body{};
  std::vector<Field> fields{};                           // further ones; names and values are ours, or were checked
  scheduler::Outcome outcome = scheduler::Outcome::eos;  // as it is counted
};

// How the answer to one request is framed.
struct Framing {
  bool is_http11 = true;
  bool keep_alive = true;
  bool is_head = false;         // the body is left out
  std::vector<Field> fields{};  // of every answer to it (CORS)
};

[[nodiscard]] Response error_response(const api::ApiError& error, api::Dialect dialect,
                                      scheduler::Outcome outcome = scheduler::Outcome::invalid_argument);
// The answer to a request that could not be read.
[[nodiscard]] Response error_response(const Refusal& refusal, api::Dialect dialect);
[[nodiscard]] Response error_response(const BadRequest& bad);

// Why an answer of `bytes`, or of at most so many, is not given by a connection whose answers may have `limit`
// (max_outbox_bytes). instead: what to do, the end of the message.
[[nodiscard]] api::ApiError too_large_an_answer(std::uint64_t bytes, std::uint64_t limit, std::string_view instead);

// The whole answer to a connection that is refused.
[[nodiscard]] std::string refusal_bytes(const Refusal& refusal);

// Says when to ask again, and whether that helps.
void add_retry_fields(Response& response, std::optional<std::chrono::milliseconds> retry_after,
                      std::optional<bool> should_retry);

// A whole answer.
[[nodiscard]] std::string response_bytes(const Response& response, const Framing& framing);
// The head of an answer whose body is sent in pieces: chunked, or, for HTTP/1.0, until the connection ends.
[[nodiscard]] std::string stream_head(const Response& response, const Framing& framing);
// One piece as a chunk; not empty.
void append_chunk(std::string& out, std::string_view piece, const Framing& framing);
void append_last_chunk(std::string& out, const Framing& framing);

// "Wed, 25 Nov 2026 04:04:43 GMT".
[[nodiscard]] std::string http_date(std::int64_t unix_seconds);
[[nodiscard]] std::string_view reason_of(int status);

}  // namespace troupe::ipc::http
