#include "ipc/http/response.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <utility>

namespace troupe::ipc::http {
namespace {

std::string head_bytes(const Response& response, const Framing& framing) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: troupe\r\n", response.status,
                                 reason_of(response.status), http_date(now));
  if (!response.content_type.empty()) head += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const auto* fields : {&response.fields, &framing.fields})
    for (const Field& field : *fields) head += fmt::format("{}: {}\r\n", field.name, field.value);
  if (!framing.keep_alive)
    head += "Connection: close\r\n";
  else if (!framing.is_http11)
    head += "Connection: keep-alive\r\n";
  return head;
}

}  // namespace

Response error_response(const api::ApiError& error, api::Dialect dialect, scheduler::Outcome outcome) {
  Response response{
      .status = api::known_status(error, dialect), .body = api::error_body(error, dialect), .outcome = outcome};
  add_retry_fields(response, error.retry_after, error.retryable);
  if (error.status == 401) response.fields.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

Response error_response(const Refusal& refusal, api::Dialect dialect) {
  return error_response(api::api_error(refusal), dialect, refusal.outcome);
}

api::ApiError too_large_an_answer(std::uint64_t bytes, std::uint64_t limit, std::string_view instead) {
  return {.status = 413,
          .message = fmt::format("the answer could have {} bytes, above the limit of {} (max_outbox_bytes); {}", bytes,
                                 limit, instead),
          .param = "max_outbox_bytes",
          .code = "answer_too_large"};
}

std::string refusal_bytes(const Refusal& refusal) {
  return response_bytes(error_response(refusal, api::Dialect::openai), {.keep_alive = false});
}

void add_retry_fields(Response& response, std::optional<std::chrono::milliseconds> retry_after,
                      std::optional<bool> should_retry) {
  if (retry_after) {
    response.fields.push_back({"Retry-After", std::to_string((retry_after->count() + 999) / 1000)});
    response.fields.push_back({"retry-after-ms", std::to_string(retry_after->count())});
  }
  if (should_retry) response.fields.push_back({"x-should-retry", *should_retry ? "true" : "false"});
}

Response error_response(const BadRequest& bad) {
  api::ApiError error{.status = bad.status, .message = bad.message};
  return error_response(error, api::Dialect::openai);
}

std::string response_bytes(const Response& response, const Framing& framing) {
  std::string bytes = head_bytes(response, framing);
  if (response.status != 204 && response.status != 304)
    bytes += fmt::format("Content-Length: {}\r\n", response.body.size());
  bytes += "\r\n";
  if (!framing.is_head) bytes += response.body;
  return bytes;
}

std::string stream_head(const Response& response, const Framing& framing) {
  // The second is for nginx, which else keeps what it gets until it has some kilobytes.
  std::string bytes = head_bytes(response, framing) + "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (framing.is_http11) bytes += "Transfer-Encoding: chunked\r\n";
  return bytes + "\r\n";
}

void append_chunk(std::string& out, std::string_view piece, const Framing& framing) {
  if (framing.is_http11) fmt::format_to(std::back_inserter(out), "{:x}\r\n", piece.size());
  out += piece;
  if (framing.is_http11) out += "\r\n";
}

void append_last_chunk(std::string& out, const Framing& framing) {
  if (framing.is_http11) out += "0\r\n\r\n";
}

std::string http_date(std::int64_t unix_seconds) {
  static constexpr std::array kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t time = unix_seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays.at(static_cast<std::size_t>(parts.tm_wday)),
                     parts.tm_mday, kMonths.at(static_cast<std::size_t>(parts.tm_mon)), parts.tm_year + 1900,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string_view reason_of(int status) {
  static constexpr std::array<std::pair<int, std::string_view>, 26> kReasons{{
      {100, "Continue"},
      {200, "OK"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {499, "Client Closed Request"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {529, "Overloaded"},
  }};
  for (const auto& [number, reason] : kReasons)
    if (number == status) return reason;
  return "Error";
}

}  // namespace troupe::ipc::http
