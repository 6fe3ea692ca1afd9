// The endpoints: one row for each, which routing, /openapi.json and the pages follow (docs/api.md, docs/api-fields.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ipc/request_kinds.h"

namespace troupe::ipc::api {

// Those that take a JSON body: each has rows in the table of fields (fields.h).
enum class Endpoint : std::uint8_t {
  chat_completions,
  completions,
  embeddings,
  responses,
  messages,
  count_tokens,
  tokenize,
  detokenize,
  apply_template,
};

// Whose shape answers and errors have. ollama: errors alone, of its paths, which are not served.
enum class Dialect : std::uint8_t { openai, anthropic, ollama };

// question: costs little, and counts against max_questions_per_second.
enum class Cost : std::uint8_t { question, work };

// The code that reads the requests of an endpoint. http::read_request() has the function of each.
enum class Reader : std::uint8_t {
  answer,
  count_tokens,
  tokenize,
  detokenize,
  apply_template,
  page,
  open,
  models,
  model,
  tokenizer_info,
  health,
  version,
  metrics,
  openapi,
};

struct EndpointInfo {
  std::string_view method;
  std::string_view path;  // a last part "{id}" is any text
  RequestKind kind;
  Dialect dialect = Dialect::openai;
  bool needs_key = true;  // false: a browser sends no key for what stands in its address bar
  Cost cost;
  std::optional<Endpoint> body{};
  Reader read;
  std::string_view type = "application/json";  // of its answer
  std::string_view summary{};                  // for /openapi.json; empty: the page's own, which is not in it
};

// First those with a body, in the order of Endpoint.
inline constexpr std::array kEndpoints{
    EndpointInfo{.method = "POST",
                 .path = "/v1/chat/completions",
                 .kind = RequestKind::generate,
                 .cost = Cost::work,
                 .body = Endpoint::chat_completions,
                 .read = Reader::answer,
                 .summary = "Answers a conversation, in the shape of OpenAI's Chat Completions."},
    EndpointInfo{.method = "POST",
                 .path = "/v1/completions",
                 .kind = RequestKind::generate,
                 .cost = Cost::work,
                 .body = Endpoint::completions,
                 .read = Reader::answer,
                 .summary = "Continues a text, in the shape of OpenAI's Completions."},
    EndpointInfo{.method = "POST",
                 .path = "/v1/embeddings",
                 .kind = RequestKind::embed,
                 .cost = Cost::work,
                 .body = Endpoint::embeddings,
                 .read = Reader::answer,
                 .summary = "Vectors of texts, in the shape of OpenAI's Embeddings."},
    EndpointInfo{.method = "POST",
                 .path = "/v1/responses",
                 .kind = RequestKind::generate,
                 .cost = Cost::work,
                 .body = Endpoint::responses,
                 .read = Reader::answer,
                 .summary = "Answers a conversation, in the shape of OpenAI's Responses; nothing is stored."},
    EndpointInfo{.method = "POST",
                 .path = "/v1/messages",
                 .kind = RequestKind::generate,
                 .dialect = Dialect::anthropic,
                 .cost = Cost::work,
                 .body = Endpoint::messages,
                 .read = Reader::answer,
                 .summary = "Answers a conversation, in the shape of Anthropic's Messages."},
    EndpointInfo{.method = "POST",
                 .path = "/v1/messages/count_tokens",
                 .kind = RequestKind::tokenize,
                 .dialect = Dialect::anthropic,
                 .cost = Cost::work,
                 .body = Endpoint::count_tokens,
                 .read = Reader::count_tokens,
                 .summary = "Counts the tokens that a conversation would have as a prompt."},
    EndpointInfo{.method = "POST",
                 .path = "/tokenize",
                 .kind = RequestKind::tokenize,
                 .cost = Cost::work,
                 .body = Endpoint::tokenize,
                 .read = Reader::tokenize,
                 .summary = "Token ids of a text."},
    EndpointInfo{.method = "POST",
                 .path = "/detokenize",
                 .kind = RequestKind::detokenize,
                 .cost = Cost::work,
                 .body = Endpoint::detokenize,
                 .read = Reader::detokenize,
                 .summary = "The text of token ids."},
    EndpointInfo{.method = "POST",
                 .path = "/apply-template",
                 .kind = RequestKind::other,
                 .cost = Cost::work,
                 .body = Endpoint::apply_template,
                 .read = Reader::apply_template,
                 .summary = "The text that the model's chat template makes of a conversation."},
    EndpointInfo{.method = "GET",
                 .path = "/",
                 .kind = RequestKind::other,
                 .needs_key = false,
                 .cost = Cost::question,
                 .read = Reader::page,
                 .type = "text/html"},
    EndpointInfo{.method = "POST",
                 .path = "/open",
                 .kind = RequestKind::other,
                 .needs_key = false,
                 .cost = Cost::question,
                 .read = Reader::open},
    EndpointInfo{.method = "GET",
                 .path = "/v1/models",
                 .kind = RequestKind::models,
                 .cost = Cost::question,
                 .read = Reader::models,
                 .summary = "The models that are loaded."},
    EndpointInfo{.method = "GET",
                 .path = "/v1/models/{id}",
                 .kind = RequestKind::models,
                 .cost = Cost::question,
                 .read = Reader::model,
                 .summary = "One of them."},
    EndpointInfo{.method = "GET",
                 .path = "/tokenizer_info",
                 .kind = RequestKind::tokenize,
                 .cost = Cost::question,
                 .read = Reader::tokenizer_info,
                 .summary = "Special tokens and chat template of the default model."},
    EndpointInfo{.method = "GET",
                 .path = "/health",
                 .kind = RequestKind::health,
                 .cost = Cost::question,
                 .read = Reader::health,
                 .summary = "Whether the server is ready."},
    EndpointInfo{.method = "GET",
                 .path = "/version",
                 .kind = RequestKind::other,
                 .cost = Cost::question,
                 .read = Reader::version,
                 .summary = "The server's version."},
    EndpointInfo{.method = "GET",
                 .path = "/metrics",
                 .kind = RequestKind::status,
                 .cost = Cost::question,
                 .read = Reader::metrics,
                 .type = "text/plain",
                 .summary = "Counters and gauges as Prometheus reads them."},
    EndpointInfo{.method = "GET",
                 .path = "/openapi.json",
                 .kind = RequestKind::other,
                 .cost = Cost::question,
                 .read = Reader::openapi,
                 .summary = "This document."},
};

inline constexpr std::span<const EndpointInfo> kBodyEndpoints =
    std::span(kEndpoints).first(static_cast<std::size_t>(Endpoint::apply_template) + 1);

[[nodiscard]] constexpr const EndpointInfo& info(Endpoint endpoint) {
  return kBodyEndpoints[static_cast<std::size_t>(endpoint)];
}

static_assert([] {
  for (std::size_t i = 0; i < kEndpoints.size(); ++i) {
    const bool has_body = i < kBodyEndpoints.size();
    if (kEndpoints[i].body != (has_body ? std::optional(static_cast<Endpoint>(i)) : std::nullopt)) return false;
  }
  return true;
}());

}  // namespace troupe::ipc::api
