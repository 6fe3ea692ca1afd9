// The endpoints that take a JSON body, and whose API each belongs to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::ipc::api {

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

struct EndpointInfo {
  Endpoint endpoint;
  Dialect dialect;
  std::string_view path;     // "/v1/chat/completions"
  std::string_view summary;  // a sentence for /openapi.json
};

inline constexpr std::array kEndpoints{
    EndpointInfo{Endpoint::chat_completions, Dialect::openai, "/v1/chat/completions",
                 "Answers a conversation, in the shape of OpenAI's Chat Completions."},
    EndpointInfo{Endpoint::completions, Dialect::openai, "/v1/completions",
                 "Continues a text, in the shape of OpenAI's Completions."},
    EndpointInfo{Endpoint::embeddings, Dialect::openai, "/v1/embeddings",
                 "Vectors of texts, in the shape of OpenAI's Embeddings."},
    EndpointInfo{Endpoint::responses, Dialect::openai, "/v1/responses",
                 "Answers a conversation, in the shape of OpenAI's Responses; nothing is stored."},
    EndpointInfo{Endpoint::messages, Dialect::anthropic, "/v1/messages",
                 "Answers a conversation, in the shape of Anthropic's Messages."},
    EndpointInfo{Endpoint::count_tokens, Dialect::anthropic, "/v1/messages/count_tokens",
                 "Counts the tokens that a conversation would have as a prompt."},
    EndpointInfo{Endpoint::tokenize, Dialect::openai, "/tokenize", "Token ids of a text."},
    EndpointInfo{Endpoint::detokenize, Dialect::openai, "/detokenize", "The text of token ids."},
    EndpointInfo{Endpoint::apply_template, Dialect::openai, "/apply-template",
                 "The text that the model's chat template makes of a conversation."},
};

[[nodiscard]] constexpr const EndpointInfo& info(Endpoint endpoint) {
  return kEndpoints[static_cast<std::size_t>(endpoint)];
}

static_assert([] {
  for (std::size_t i = 0; i < kEndpoints.size(); ++i)
    if (static_cast<std::size_t>(kEndpoints[i].endpoint) != i) return false;
  return true;
}());

}  // namespace troupe::ipc::api
