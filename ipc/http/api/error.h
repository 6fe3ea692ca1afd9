// What an HTTP client is told when a request is refused or fails: OpenAI's and Anthropic's shapes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "actors/requests/request.h"
#include "ipc/http/api/endpoint.h"
#include "scheduler/outcome.h"

namespace troupe::ipc::api {

struct ApiError {
  int status = 400;
  std::string message{};                                   // what is wrong, and what to do; UTF-8
  std::string type = "invalid_request_error";              // OpenAI's; the Anthropic type follows from the status
  std::string param{};                                     // the field of the request, or the limit; empty: null
  std::string code{};                                      // the outcome's name, or a code of OpenAI's; empty: null
  std::optional<std::chrono::milliseconds> retry_after{};  // for the headers Retry-After and retry-after-ms
  // For the header x-should-retry, which OpenAI's and Anthropic's clients follow: without it they repeat every 5xx.
  bool retryable = false;
  std::optional<scheduler::Overflow> overflow{};
};

// The error for an end of kind refused or failed, or cancelled; status and code come from the table of outcomes.
[[nodiscard]] ApiError api_error(const actors::End& end);
// The same for what is refused before it reaches the gateway.
[[nodiscard]] ApiError api_error(scheduler::Refusal refusal);

// The name that a field of the frames' protocol, as the gateway and its rules call it, has in requests to this
// endpoint.
[[nodiscard]] std::string field_here(std::string_view field, Endpoint endpoint);

// The status as clients of the dialect know it: Anthropic's have one of their own for a server that takes no work now.
[[nodiscard]] int known_status(const ApiError& error, Dialect dialect);

// The message as clients of the dialect know it: what they look for in the words of their API's owner, then ours. A
// context that overflows, a wrong key, too many requests.
[[nodiscard]] std::string known_message(const ApiError& error, Dialect dialect);

// A JSON body: {"error":{...}} or {"type":"error","error":{...},"request_id":...}.
//   request_id  Anthropic's only; empty: null
[[nodiscard]] std::string error_body(const ApiError& error, Dialect dialect, const std::string& request_id = {});

// The error as the last event of a stream that has begun.
[[nodiscard]] std::string error_event(const ApiError& error, Dialect dialect);

}  // namespace troupe::ipc::api
