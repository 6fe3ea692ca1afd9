// Bodies of the endpoints that neither generate nor embed.
#include <utility>

#include "config/assert.h"
#include "config/sampling/sampling_numbers.h"
#include "config/utf8.h"
#include "ipc/http/api/answer.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {
namespace {

void write_defaults(JsonWriter& json, const config::ModelDefaults& defaults) {
  json.key("defaults").begin_object();
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) {
        if (!value) return;
        if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(*value)>>)
          json.field(number.name, static_cast<float>(*value));  // 0.7 where a file has the float next to it
        else
          json.field(number.name, *value);
      },
      defaults);
  if (!defaults.reasoning.empty()) json.field("reasoning_effort", defaults.reasoning);
  if (defaults.reasoning_budget) json.field("thinking_token_budget", *defaults.reasoning_budget);
  if (!defaults.system.empty()) json.field("system_bytes", defaults.system.size());  // its text is the owner's
  json.end_object();
}

void write_model(JsonWriter& json, const ListedModel& model, std::int64_t created) {
  json.begin_object().field("id", model.name).field("object", "model").field("created", created);
  json.field("owned_by", "troupe").key("troupe").begin_object().field("readiness", model.readiness);
  if (!model.alias_of.empty()) json.field("alias_of", model.alias_of);
  if (!model.aliases.empty()) {
    json.key("aliases").begin_array();
    for (const std::string& each : model.aliases) json.string(each);
    json.end_array();
  }
  if (!model.is_loaded) {
    json.field("load_fraction", model.load_fraction).end_object().end_object();
    return;
  }
  json.field("max_context", model.max_context);
  json.field("vocab_size", model.vocab_size)
      .field("num_parameters", model.num_parameters)
      .field("numerics_id", model.numerics_id);
  json.field("chat_template", model.has_chat_template);
  if (!model.tool_format.empty()) json.field("tool_format", model.tool_format);
  if (!model.defaults.empty()) write_defaults(json, model.defaults);
  if (!model.has_chat_template && !model.likely_template.empty())
    json.field("likely_chat_template", model.likely_template);
  json.end_object().end_object();
}

// As llama-server: bytes that are no text, as of a part of a character, as numbers.
void write_piece(JsonWriter& json, const std::string& piece) {
  if (is_utf8(piece)) return void(json.string(piece));
  json.begin_array();
  for (const char c : piece) json.natural(static_cast<unsigned char>(c));
  json.end_array();
}

}  // namespace

std::string count_tokens_body(std::uint64_t num_tokens) {
  std::string out;
  JsonWriter(out).begin_object().field("input_tokens", num_tokens).end_object();
  return out;
}

std::string tokenize_body(std::span<const TokenId> ids, std::span<const std::string> pieces,
                          std::uint32_t max_context) {
  TROUPE_ASSERT(pieces.empty() || pieces.size() == ids.size());
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("tokens").begin_array();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (pieces.empty()) {
      json.integer(ids[i]);
      continue;
    }
    json.begin_object().field("id", ids[i]).key("piece");
    write_piece(json, pieces[i]);
    json.end_object();
  }
  json.end_array();
  json.field("count", ids.size()).field("max_context", max_context).field("max_model_len", max_context).end_object();
  return out;
}

// llama-server's name, and vLLM's.
std::string detokenize_body(std::string_view text) {
  std::string out;
  JsonWriter(out).begin_object().field("content", text).field("prompt", text).end_object();
  return out;
}

std::string tokenizer_info_body(const TokenizerFacts& facts) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("model", facts.model);
  for (const auto& [name, token] :
       {std::pair("bos_token", &facts.bos), std::pair("eos_token", &facts.eos), std::pair("unk_token", &facts.unknown)})
    *token ? json.field(name, **token) : json.null_field(name);
  json.null_field("pad_token").field("add_bos_token", facts.adds_bos).field("model_max_length", facts.max_context);
  facts.chat_template.empty() ? json.null_field("chat_template") : json.field("chat_template", facts.chat_template);
  json.end_object();
  return out;
}

std::string apply_template_body(std::string_view prompt) {
  std::string out;
  JsonWriter(out).begin_object().field("prompt", prompt).end_object();
  return out;
}

std::string models_body(std::span<const ListedModel> models, std::int64_t created) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "list").key("data").begin_array();
  for (const ListedModel& each : models) write_model(json, each, created);
  json.end_array().end_object();
  return out;
}

std::string model_body(const ListedModel& model, std::int64_t created) {
  std::string out;
  JsonWriter json(out);
  write_model(json, model, created);
  return out;
}

}  // namespace troupe::ipc::api
