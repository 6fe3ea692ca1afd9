// Parses the answers of an OpenAI-compatible server: server-sent events, completion chunks, errors. Plain logic; every
// size and number is checked, because the server is not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "bench/load/record.h"
#include "config/result.h"

namespace troupe::load {

// Splits a stream of bytes into the data of its events (WHATWG "Server-sent events", without event names and ids, which
// these servers do not use; lines end with LF or CRLF).
class EventParser {
 public:
  // `max_bytes`: of one event, and of one line.
  explicit EventParser(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // Calls `on_event` with the data of each event that `bytes` completes. False: an event is too large, or `on_event`
  // returned false; then feed() must not be called again.
  [[nodiscard]] bool feed(std::string_view bytes, const std::function<bool(std::string_view)>& on_event);

 private:
  bool end_line(const std::function<bool(std::string_view)>& on_event);

  std::size_t max_bytes_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

// Reads the events of one streamed completion into a record: arrivals, token counts, how it ended.
//
// Tokens of a chunk: from llama.cpp's timings.predicted_n or vLLM's running usage.completion_tokens if present, else
// one for each chunk with text. The last usage is the total of the answer; tokens that no chunk accounted for are
// counted, but have no arrival.
class CompletionReader {
 public:
  explicit CompletionReader(RequestRecord& record) : record_(record) {}

  // One event's data, which a read at `at_s` brought; all of one read have the same. False: it is not what such a
  // server sends, or an error; `failure` says it.
  [[nodiscard]] bool read(std::string_view data, double at_s);

  [[nodiscard]] bool finished() const { return !finish_reason_.empty(); }
  [[nodiscard]] const std::string& finish_reason() const { return finish_reason_; }
  [[nodiscard]] std::uint32_t num_finishes() const { return num_finishes_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  bool fail(std::string_view what);

  RequestRecord& record_;
  std::string finish_reason_;
  std::uint32_t num_finishes_ = 0;
  std::string failure_;
};

// Retry-After in seconds (RFC 9110, 10.2.3): a number, or a date relative to `now_unix_s`. Absent: not valid.
[[nodiscard]] std::optional<double> retry_after_s(std::string_view value, double now_unix_s);

// The message in an error's body: {"error": {"message": ...}}, {"message": ...}, else the beginning of the body.
[[nodiscard]] std::string error_message(std::string_view body);

// Sets kind, outcome ("http_503") and message of a request that was answered with a status other than 200. 429, 503 and
// 4xx are refusals, other 5xx failures.
void read_http_error(int status, std::string_view body, RequestRecord& record);

}  // namespace troupe::load
