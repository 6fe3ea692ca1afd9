#include "ipc/http/endpoints.h"

#include <array>
#include <utility>

namespace troupe::ipc::http {
namespace {

using enum RequestKind;
using api::Dialect;

constexpr std::array kRoutes{
    Route{"GET", "/", other, true, Dialect::openai, read_page, true},
    Route{"POST", "/open", other, true, Dialect::openai, read_open, true},
    Route{"GET", "/health", health, true, Dialect::openai, read_health},
    Route{"GET", "/version", other, true, Dialect::openai, read_version},
    Route{"GET", "/metrics", status, true, Dialect::openai, read_metrics},
    Route{"GET", "/openapi.json", other, true, Dialect::openai, read_openapi},
    Route{"GET", "/v1/models", models, true, Dialect::openai, read_models},
    Route{"GET", "/v1/models/*", models, true, Dialect::openai, read_model},
    Route{"POST", "/tokenize", tokenize, false, Dialect::openai, read_tokenize},
    Route{"POST", "/detokenize", detokenize, false, Dialect::openai, read_detokenize},
    Route{"GET", "/tokenizer_info", tokenize, true, Dialect::openai, read_tokenizer_info},
    Route{"POST", "/apply-template", other, false, Dialect::openai, read_apply_template},
    Route{"POST", "/v1/chat/completions", generate, false, Dialect::openai, read_chat_completions},
    Route{"POST", "/v1/responses", generate, false, Dialect::openai, read_responses},
    Route{"POST", "/v1/messages", generate, false, Dialect::anthropic, read_messages},
    Route{"POST", "/v1/messages/count_tokens", tokenize, false, Dialect::anthropic, read_count_tokens},
    Route{"POST", "/v1/completions", generate, false, Dialect::openai, read_completions},
    Route{"POST", "/v1/embeddings", embed, false, Dialect::openai, read_embeddings},
};

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

}  // namespace

std::vector<const Route*> routes_at(std::string_view path) {
  std::vector<const Route*> found;
  for (const Route& route : kRoutes)
    if (matches(route.path, path)) found.push_back(&route);
  return found;
}

Act refuse_with(api::ApiError error, api::Dialect dialect) {
  return [error = std::move(error), dialect](Exchange& exchange) {
    exchange.respond(error_response(error, dialect, outcome_of(error)));
  };
}

scheduler::Outcome outcome_of(const api::ApiError& error) {
  for (const scheduler::OutcomeInfo& row : scheduler::outcomes())
    if (row.name == error.code) return row.outcome;
  return scheduler::Outcome::invalid_argument;
}

actors::ChatPrompt chat_prompt(api::Conversation&& conversation) {
  actors::ChatPrompt chat{.messages = {},
                          .add_generation_prompt = conversation.add_generation_prompt,
                          .variables = std::move(conversation.template_arguments),
                          .continue_final_message = conversation.continue_final_message};
  chat.messages.reserve(conversation.messages.size());
  for (api::ChatMessage& message : conversation.messages)
    chat.messages.push_back({.role = std::move(message.role),
                             .content = std::move(message.content.text),
                             .name = std::move(message.name).value_or(""),
                             .reasoning = std::move(message.reasoning_content).value_or(""),
                             .members = std::move(message.members),
                             .part_bytes = std::move(message.content.part_bytes),
                             .has_content = !message.content.is_null});
  return chat;
}

api::ApiContext api_context(const ReadContext& context) {
  return {.tenant = context.tenant,
          .uid = context.uid,
          .max_prompt_bytes = context.max_prompt_bytes,
          .vector_dim = [gateway = context.gateway](const std::string& name) -> std::optional<std::uint32_t> {
            const auto model = gateway->model(name);
            return model ? std::optional<std::uint32_t>(model->info().dim) : std::nullopt;
          }};
}

}  // namespace troupe::ipc::http
