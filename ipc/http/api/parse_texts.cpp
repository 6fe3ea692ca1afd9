#include <fmt/format.h>

#include <utility>

#include "ipc/http/api/parse.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {
namespace {

using actors::Prompt;

// A text, or an array of ids that is not empty.
std::optional<Prompt> to_prompt(JsonValue& value) {
  if (auto* const text = value.as<std::string>()) return std::move(*text);
  auto* const array = value.as<JsonArray>();
  auto ids = array ? to_ids(*array) : std::nullopt;
  if (!ids || ids->empty()) return std::nullopt;
  return *std::move(ids);
}

// The prompts of a completion: a text, ids, or an array of texts and arrays of ids.
void read_prompts(Parsing& at) {
  JsonValue* const value = at.fields.find("prompt");
  if (!value) return;
  auto* const array = value->as<JsonArray>();
  const bool is_list = array && !array->empty() && !array->front().number();
  const std::size_t count = is_list ? array->size() : 1;
  const std::uint32_t n = at.call.request.num_choices;
  if (count > 1 && count * n > actors::kMaxChoices)
    return at.fields.refuse(
        "prompt", fmt::format("prompt has {} prompts, with n = {} that is {} choices; at most {} are served", count, n,
                              count * n, actors::kMaxChoices));
  for (std::size_t i = 0; i < count; ++i) {
    auto prompt = to_prompt(is_list ? (*array)[i] : *value);
    if (!prompt)
      return at.fields.refuse("prompt", fmt::format("prompt{} must be text or token ids, and not empty",
                                                    is_list ? fmt::format("[{}]", i) : ""));
    if (i == 0)
      at.call.request.prompt = *std::move(prompt);
    else
      at.call.more_prompts.push_back(*std::move(prompt));
  }
  if (count > 1 && !at.call.request.session.empty())
    at.fields.refuse("prompt",
                     fmt::format("prompt has {} prompts, and a session is continued by one; send one", count));
}

void read_inputs(Parsing& at, actors::EmbedInputs& asked) {
  JsonValue* const value = at.fields.find("input");
  if (!value) return;
  auto& texts = asked.texts.emplace<std::vector<std::string>>();
  if (auto* const text = value->as<std::string>()) return void(texts.push_back(std::move(*text)));
  JsonArray& array = *value->as<JsonArray>();
  constexpr const char* kShape = "input must be a text, token ids, or an array of texts or of arrays of ids";
  if (array.empty()) return at.fields.refuse("input", "input is empty; send at least one text");
  if (array.front().number()) {
    auto ids = to_ids(array);
    if (!ids) return at.fields.refuse("input", kShape);
    asked.texts.emplace<actors::EmbedIds>().push_back(*std::move(ids));
    return;
  }
  if (array.size() > actors::kMaxEmbedInputs)
    return at.fields.refuse("input", fmt::format("input has {} texts; at most {} are taken at once", array.size(),
                                                 actors::kMaxEmbedInputs));
  if (array.front().as<std::string>()) {
    for (JsonValue& each : array) {
      if (!each.as<std::string>()) return at.fields.refuse("input", kShape);
      texts.push_back(std::move(*each.as<std::string>()));
    }
    return;
  }
  auto& inputs = asked.texts.emplace<actors::EmbedIds>();
  for (const JsonValue& each : array) {
    auto ids = each.as<JsonArray>() ? to_ids(*each.as<JsonArray>()) : std::nullopt;
    if (!ids) return at.fields.refuse("input", kShape);
    inputs.push_back(*std::move(ids));
  }
}

void read_truncation(Parsing& at, actors::EmbedInputs& asked) {
  if (at.fields.has("truncate")) at.fields.read("truncate", asked.truncate.emplace());
  if (!at.fields.has("truncate_prompt_tokens")) return;
  std::int32_t most = 0;
  at.fields.read("truncate_prompt_tokens", most);
  if (most < -1 || most == 0)
    return at.fields.refuse("truncate_prompt_tokens",
                            fmt::format("truncate_prompt_tokens is {}; it must be a number of tokens from 1 on, or -1 "
                                        "for as many as the model reads",
                                        most));
  if (asked.truncate == false)
    return at.fields.refuse("truncate_prompt_tokens",
                            "truncate_prompt_tokens says how texts are cut, and truncate that none is; leave one out");
  asked.truncate = true;
  if (most > 0) asked.most_tokens = static_cast<std::uint32_t>(most);
}

}  // namespace

void parse_completion(Parsing& at) {
  actors::Request& request = at.call.request;
  read_prompts(at);
  request.parse_special = true;  // the prompt is the caller's own, as in llama-server and vLLM
  at.fields.read("parse_special", request.parse_special);
  if (at.fields.has("best_of")) {
    std::uint32_t best_of = 0;
    at.fields.read("best_of", best_of, 1, actors::kMaxChoices);
    if (best_of != request.num_choices)
      at.fields.refuse("best_of", fmt::format("best_of is {} and n is {}; they must be equal: all answers are returned",
                                              best_of, request.num_choices));
  }
  if (!at.fields.has("logprobs")) return;
  at.call.logprobs = true;
  at.fields.read("logprobs", request.sampling.num_logprobs);
  if (request.sampling.num_logprobs < 0)
    at.fields.refuse("logprobs", fmt::format("logprobs is {}; it must be at least 0", request.sampling.num_logprobs));
  if (!at.call.echo) return;
  request.sampling.prompt_logprobs = true;
  if (request.num_choices > 1)
    at.fields.refuse("echo",
                     fmt::format("echo with logprobs scores the prompt for one answer, and n is {}; ask for one",
                                 request.num_choices));
  if (!request.session.empty())
    at.fields.refuse("echo",
                     "echo with logprobs computes the whole prompt, and a session goes on from what it has; "
                     "leave one out");
}

void parse_embedding(Parsing& at) {
  actors::Request& request = at.call.request;
  actors::EmbedInputs& asked = request.embed.emplace();
  read_inputs(at, asked);
  std::string format = "float", pooling;
  at.fields.read("encoding_format", format);
  at.call.base64 = format == "base64";
  at.fields.read("pooling", pooling);
  if (pooling == "mean") asked.pooling = engine::Pooling::mean;
  if (pooling == "cls") asked.pooling = engine::Pooling::cls;
  if (pooling == "last") asked.pooling = engine::Pooling::last;
  at.fields.read("normalize", asked.normalise);
  read_truncation(at, asked);
  at.fields.read("parse_special", request.parse_special);
  if (!at.fields.has("dimensions")) return;
  std::uint32_t dimensions = 0;
  at.fields.read("dimensions", dimensions, 1);
  at.call.dimensions = dimensions;
  if (!at.context.vector_dim) return;
  const auto width = at.context.vector_dim(request.model);
  if (width && *width != dimensions)
    at.fields.refuse("dimensions", fmt::format("dimensions is {}; this model's vectors have {}, and are not shortened",
                                               dimensions, *width));
}

// llama-server's `content`, or vLLM's `prompt`.
void parse_tokenize(Parsing& at) {
  if (at.fields.has("content") && at.fields.has("prompt"))
    return at.fields.refuse("prompt", "content and prompt are two names of one thing; send one");
  if (!at.fields.has("content") && !at.fields.has("prompt")) return at.fields.refuse("content", "content is missing");
  std::string& text = at.call.request.prompt.emplace<std::string>();
  at.fields.read("content", text);
  at.fields.read("prompt", text);
  at.call.request.parse_special = true;
  at.fields.read("parse_special", at.call.request.parse_special);
  at.fields.read("with_pieces", at.call.with_pieces);
}

void parse_detokenize(Parsing& at) {
  auto& ids = at.call.request.prompt.emplace<std::vector<TokenId>>();
  at.fields.read_ids("tokens", ids, actors::kMaxDetokenizeIds);
}

}  // namespace troupe::ipc::api
