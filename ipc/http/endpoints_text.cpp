// Texts and ids: /tokenize and /detokenize in llama-server's shape and in vLLM's, /tokenizer_info in vLLM's,
// /apply-template in llama-server's, /v1/messages/count_tokens.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "actors/visible_models.h"
#include "config/utf8.h"
#include "ipc/http/api/call.h"
#include "ipc/http/endpoints.h"

namespace troupe::ipc::http {
namespace {

using api::ApiCall;
using api::ApiError;

Response refused(const actors::End& end, api::Dialect dialect = api::Dialect::openai) {
  return error_response(api::api_error(end), dialect, end.outcome);
}

std::vector<std::string> pieces_of(const engine::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const TokenId id : ids) {
    std::string piece = tokenizer.piece(id);
    pieces.push_back(piece.empty() ? tokenizer.raw_piece(id) : std::move(piece));
  }
  return pieces;
}

// On a text thread.
Response tokenized(const std::vector<TokenId>& ids, const ApiCall& call, const actors::ServedModel* model) {
  std::vector<std::string> pieces;
  if (call.with_pieces && model && model->tokenizer()) pieces = pieces_of(*model->tokenizer(), ids);
  return {.body = api::tokenize_body(ids, pieces, model ? model->info().context : 0)};
}

// Refuses a text whose answer might not fit into an outbox, rather than encode it first. At worst each byte is a token
// of its own, as tokenize_body() writes it: its id and a comma, or {"id":N,"piece":"\u0001"} and a comma.
std::optional<ApiError> check_tokens(const ApiCall& call, const actors::ServedModel* model, std::uint64_t most) {
  if (!model || !model->tokenizer()) return std::nullopt;  // the gateway refuses it
  const std::uint64_t id_bytes = std::to_string(model->tokenizer()->size()).size() + 1;
  const std::uint64_t token_bytes = id_bytes + (call.with_pieces ? 24 : 0), frame = 1024;
  const std::uint64_t bytes = actors::input_bytes(call.request) * token_bytes + frame;
  if (bytes <= most) return std::nullopt;
  return too_large_an_answer(
      bytes, most,
      fmt::format("send the text in parts of at most {} bytes", (most - std::min(most, frame)) / token_bytes));
}

void begin_tokenize(const std::shared_ptr<ApiCall>& call, Exchange& exchange) {
  const engine::EncodeOptions options{.add_special = call->request.add_special,
                                      .parse_special = call->request.parse_special};
  actors::Gateway& gateway = exchange.gateway();
  auto model = actors::visible_model(gateway, exchange.tenant(), call->request.model);
  if (const auto why = check_tokens(*call, model.get(), exchange.options().limits.max_outbox_bytes))
    return exchange.respond(error_response(*why, api::Dialect::openai, scheduler::Outcome::too_long));
  auto done = [reply = exchange.reply_later(), call, model = std::move(model)](actors::Tokenized answer) {
    if (const auto* end = std::get_if<actors::End>(&answer)) return reply(refused(*end));
    reply(tokenized(std::get<std::vector<TokenId>>(answer), *call, model.get()));
  };
  exchange.cancel_with_client(gateway.tokenize({exchange.tenant(), call->request.model},
                                               std::get<std::string>(std::move(call->request.prompt)), options,
                                               std::move(done)));
}

void begin_detokenize(const std::shared_ptr<ApiCall>& call, Exchange& exchange) {
  auto done = [reply = exchange.reply_later()](actors::Detokenized answer) {
    if (const auto* end = std::get_if<actors::End>(&answer)) return reply(refused(*end));
    reply({.body = api::detokenize_body(std::get<std::string>(answer))});
  };
  exchange.cancel_with_client(
      exchange.gateway().detokenize({exchange.tenant(), call->request.model},
                                    std::get<std::vector<TokenId>>(std::move(call->request.prompt)), std::move(done)));
}

void begin_template(const std::shared_ptr<ApiCall>& call, Exchange& exchange) {
  auto done = [reply = exchange.reply_later()](actors::Rendered answer) {
    if (const auto* end = std::get_if<actors::End>(&answer)) return reply(refused(*end));
    reply({.body = api::apply_template_body(std::get<std::string>(answer))});
  };
  exchange.cancel_with_client(exchange.gateway().apply_template(
      {exchange.tenant(), call->request.model}, std::get<actors::ChatPrompt>(std::move(call->request.prompt)),
      std::move(done)));
}

void begin_count(const std::shared_ptr<ApiCall>& call, Exchange& exchange) {
  auto done = [reply = exchange.reply_later()](actors::Tokenized answer) {
    if (const auto* end = std::get_if<actors::End>(&answer)) return reply(refused(*end, api::Dialect::anthropic));
    reply({.body = api::count_tokens_body(std::get<std::vector<TokenId>>(answer).size())});
  };
  exchange.cancel_with_client(
      exchange.gateway().tokenize_chat({exchange.tenant(), call->request.model},
                                       std::get<actors::ChatPrompt>(std::move(call->request.prompt)), std::move(done)));
}

Act read_text(const Request& request, const ReadContext& context,
              void (*act)(const std::shared_ptr<ApiCall>&, Exchange&)) {
  auto parsed = api::parse_call(*context.endpoint->body, request.body, api_context(context));
  if (auto* error = std::get_if<ApiError>(&parsed)) return refuse_with(std::move(*error), context.endpoint->dialect);
  if (context.asked != nullptr) context.asked->model = std::get<ApiCall>(parsed).request.model;
  return [act, call = std::make_shared<ApiCall>(std::get<ApiCall>(std::move(parsed)))](Exchange& exchange) {
    act(call, exchange);
  };
}

}  // namespace

Act read_tokenize(Request&& request, const ReadContext& context) { return read_text(request, context, begin_tokenize); }

Act read_detokenize(Request&& request, const ReadContext& context) {
  return read_text(request, context, begin_detokenize);
}

Act read_tokenizer_info(Request&&, const ReadContext&) {
  return [](Exchange& exchange) {
    const auto model = actors::visible_model(exchange.gateway(), exchange.tenant(), {});
    if (!model)
      return exchange.respond(
          error_response(Refusal{.outcome = scheduler::Outcome::loading,
                                 .message = "the default model is not in memory; ask again when it "
                                            "is, or ask it for an answer if it is loaded on request",
                                 .field = "model"},
                         api::Dialect::openai));
    if (!model->tokenizer())
      return exchange.respond(error_response(
          Refusal{.outcome = scheduler::Outcome::unsupported, .message = "the default model has no vocabulary"},
          api::Dialect::openai));
    const engine::Tokenizer& tokenizer = *model->tokenizer();
    const auto text = [&](std::optional<TokenId> id) {
      return id ? std::optional(valid_utf8(tokenizer.raw_piece(*id))) : std::nullopt;
    };
    // The default one first, whichever are loaded.
    const auto models = actors::visible_health(exchange.gateway(), exchange.tenant());
    api::TokenizerFacts facts{.model = models.empty() ? "" : valid_utf8(models.front().name),
                              .bos = text(tokenizer.bos()),
                              .eos = text(tokenizer.eos()),
                              .unknown = text(tokenizer.unknown()),
                              .adds_bos = tokenizer.adds_bos(),
                              .max_context = model->info().context};
    if (model->chat_template()) facts.chat_template = valid_utf8(model->chat_template()->source());
    exchange.respond({.body = api::tokenizer_info_body(facts)});
  };
}

Act read_apply_template(Request&& request, const ReadContext& context) {
  return read_text(request, context, begin_template);
}

Act read_count_tokens(Request&& request, const ReadContext& context) {
  return read_text(request, context, begin_count);
}

}  // namespace troupe::ipc::http
