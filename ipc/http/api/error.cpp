#include "ipc/http/api/error.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {
namespace {

// What clients look at beside the status: OpenAI's `type` and `code`, and Anthropic's `type`.
struct StatusTypes {
  int status;
  std::string_view openai;
  std::string_view anthropic;
};
constexpr std::array kStatusTypes{
    StatusTypes{400, "invalid_request_error", "invalid_request_error"},
    StatusTypes{401, "authentication_error", "authentication_error"},
    StatusTypes{403, "permission_error", "permission_error"},
    StatusTypes{404, "invalid_request_error", "not_found_error"},
    StatusTypes{405, "invalid_request_error", "invalid_request_error"},
    StatusTypes{408, "timeout_error", "timeout_error"},
    StatusTypes{413, "invalid_request_error", "request_too_large"},
    StatusTypes{429, "rate_limit_error", "rate_limit_error"},
    StatusTypes{499, "request_cancelled", "api_error"},
    StatusTypes{503, "service_unavailable_error", "overloaded_error"},
};

StatusTypes types_of(int status) {
  for (const StatusTypes& each : kStatusTypes)
    if (each.status == status) return each;
  if (status < 500) return {status, "invalid_request_error", "invalid_request_error"};
  return {status, "server_error", "api_error"};
}

constexpr std::string_view kOverflow = "context_length_exceeded";

// OpenAI's name for an outcome, where its clients know one; else ours.
std::string_view code_of(scheduler::Outcome outcome) {
  using scheduler::Outcome;
  switch (outcome) {
    case Outcome::unknown_model:
      return "model_not_found";
    case Outcome::too_long:
    case Outcome::never_fits:
      return kOverflow;
    default:
      return scheduler::info(outcome).name;
  }
}

// What the model is to read.
std::string_view prompt_field(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::completions:
      return "prompt";
    case Endpoint::embeddings:
    case Endpoint::responses:
      return "input";
    case Endpoint::tokenize:
      return "content";
    case Endpoint::detokenize:
      return "tokens";
    case Endpoint::chat_completions:
    case Endpoint::messages:
    case Endpoint::count_tokens:
    case Endpoint::apply_template:
      break;
  }
  return "messages";
}

void write_openai(JsonWriter& json, const ApiError& error) {
  json.begin_object().key("error").begin_object();
  json.field("message", known_message(error, Dialect::openai)).field("type", error.type);
  const auto text_or_null = [&](std::string_view name, const std::string& text) {
    if (text.empty())
      json.null_field(name);
    else
      json.field(name, text);
  };
  text_or_null("param", error.param);
  // With a blank: programs look for these bytes.
  if (error.code == kOverflow)
    json.raw_field("code", " \"context_length_exceeded\"");
  else
    text_or_null("code", error.code);
  json.end_object().end_object();
}

// Also of the cache: programs look for the words of an overflow behind this status alone.
constexpr int kOverflowStatus = 400;
constexpr int kUnavailable = 503, kOverloaded = 529;  // kOverloaded: Anthropic's

ApiError error_of(const scheduler::OutcomeInfo& row, std::string message, std::string_view field) {
  constexpr std::string_view kSampling = "sampling.";  // fields of the frames' protocol, which are nested there
  if (field.starts_with(kSampling)) field.remove_prefix(kSampling.size());
  return {.status = row.http_status,
          .message = std::move(message),
          .type = std::string(types_of(row.http_status).openai),
          .param = std::string(field),
          .code = std::string(code_of(row.outcome)),
          .retryable = row.retryable};
}

}  // namespace

ApiError api_error(scheduler::Refusal refusal) {
  const scheduler::OutcomeInfo& row = scheduler::info(refusal.outcome);
  ApiError error = error_of(row, std::move(refusal.message), refusal.field);
  const auto ms = scheduler::retry_ms(refusal);
  if (ms) error.retry_after = std::chrono::milliseconds(*ms);
  error.retryable &= ms.has_value();
  error.overflow = refusal.overflow;
  if (error.overflow) error.status = kOverflowStatus;
  return error;
}

ApiError api_error(const actors::End& end) {
  const scheduler::OutcomeInfo& row = scheduler::info(end.outcome);
  ApiError error =
      error_of(row, end.message.empty() ? "the request was ended: " + std::string(row.name) : end.message, end.field);
  error.retry_after = end.retry_after;
  error.overflow = end.overflow;
  if (error.overflow) error.status = kOverflowStatus;
  error.retryable &= end.retry_after || row.kind != scheduler::OutcomeKind::refused;  // a quota that is never met
  return error;
}

std::string field_here(std::string_view field, Endpoint endpoint) {
  if (field == "text" || field == "token_ids" || field == "texts" || field == "prompt" || field == "messages")
    return std::string(prompt_field(endpoint));
  if (field == "template_variables") return "chat_template_kwargs";
  if (field == "stop" && endpoint == Endpoint::messages) return "stop_sequences";
  if (field == "stop_ids") return "stop_token_ids";
  if (field == "proof") return "troupe.receipt";
  if (field == "max_tokens" && endpoint == Endpoint::responses) return "max_output_tokens";
  return std::string(field);
}

int known_status(const ApiError& error, Dialect dialect) {
  return dialect == Dialect::anthropic && error.status == kUnavailable ? kOverloaded : error.status;
}

std::string known_message(const ApiError& error, Dialect dialect) {
  const bool is_anthropic = dialect == Dialect::anthropic;
  if (const auto& overflow = error.overflow; overflow && is_anthropic)
    return fmt::format("prompt is too long: {} tokens > {} maximum: {}", overflow->tokens, overflow->most,
                       error.message);
  if (const auto& overflow = error.overflow)
    return fmt::format("This model's maximum context length is {} tokens. However, {}", overflow->most, error.message);
  // Its bytes, or a text to embed; not an answer that would be too large.
  if (error.code == kOverflow && error.param != "max_outbox_bytes") return "prompt is too long: " + error.message;
  if (error.status == 401)
    return (is_anthropic ? "invalid x-api-key: " : "Incorrect API key provided: ") + error.message;
  if (error.status == 429) return "Rate limit reached: " + error.message;
  return error.message;
}

std::string error_body(const ApiError& error, Dialect dialect, const std::string& request_id) {
  std::string out;
  JsonWriter json(out);
  if (dialect == Dialect::openai) {
    write_openai(json, error);
    return out;
  }
  if (dialect == Dialect::ollama) {
    json.begin_object().field("error", error.message).end_object();
    return out;
  }
  json.begin_object().field("type", "error").key("error").begin_object();
  json.field("type", types_of(error.status).anthropic).field("message", known_message(error, dialect));
  // The owner's clients ask with every run of tools for a conversation that the server keeps; told so, they send it
  // whole.
  if (error.param == "thread")
    json.raw_field("details", R"({"error_code":"thread_unsupported_request","unsupported":["thread"]})");
  json.end_object();
  if (request_id.empty())
    json.null_field("request_id");
  else
    json.field("request_id", request_id);
  json.end_object();
  return out;
}

std::string error_event(const ApiError& error, Dialect dialect) {
  const std::string_view name = dialect == Dialect::anthropic ? "event: error\n" : "";
  return std::string(name) + "data: " + error_body(error, dialect) + "\n\n";
}

}  // namespace troupe::ipc::api
