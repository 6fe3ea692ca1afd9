// The parts of parse_call(), one for each kind of endpoint. Within the folder only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ipc/http/api/call.h"
#include "ipc/http/api/field_reader.h"

namespace troupe::ipc::api {

// Where a body is read into. `refusal` is the first one; then the rest of the call means nothing.
struct Parsing {
  const ApiContext& context;
  ApiCall& call;
  JsonObject& body;
  std::optional<ApiError> refusal{};
  FieldReader fields{body, refusal};
};

// Sampling, stop strings, priority and the like, of the endpoints that generate.
void parse_generation(Parsing& at);
// `stream` and `stream_options`.
void parse_stream(Parsing& at);
void parse_chat(Parsing& at);  // also apply-template
void parse_completion(Parsing& at);
void parse_embedding(Parsing& at);
void parse_response(Parsing& at);
void parse_messages(Parsing& at);  // also count_tokens

// Whether an entry of `tools` is none that a client runs: web_search, computer and the like. in_namespace: of the tools
// of a namespace.
[[nodiscard]] bool is_other_tool(Endpoint endpoint, const JsonObject& tool, bool in_namespace);
// What the model calls a tool of a namespace: "mcp__files" and "read" are mcp__files__read. Without one: `name`.
[[nodiscard]] std::string name_within(std::string_view name_space, std::string_view name);
// `tools`, `tool_choice` and `parallel_tool_calls` of the endpoints that answer conversations.
void parse_tools(Parsing& at, actors::ChatPrompt& chat);
// A call in a message that is sent back.
struct EarlierCall {
  std::string id{}, name{}, arguments{};  // a JSON object
};
// The names of tools by the ids of the calls so far: results of tools say ids alone, and some templates want names.
using CalledNames = std::unordered_map<std::string, std::string>;
// ChatMessage::members of an answer with these calls; empty without any.
[[nodiscard]] std::string called_tools(const std::vector<EarlierCall>& calls);
[[nodiscard]] actors::ChatMessage tool_result(const CalledNames& names, const std::string& id, std::string content);
// The JSON object of a call's arguments, which are text. What is none, as of an answer that was cut, becomes the member
// `incomplete` of one, so that an agent can go on: {"incomplete": TEXT}.
[[nodiscard]] std::string arguments_object(std::string_view text);
void parse_tokenize(Parsing& at);
void parse_detokenize(Parsing& at);

// Calls `each(reader, i)` for every object in an array; refuses entries that are none, and more than max_count.
template <class Each>
void for_each_object(FieldReader& fields, std::string_view name, std::size_t max_count,
                     std::optional<ApiError>& refusal, Each each);

// --- definitions of templates ---

template <class Each>
void for_each_object(FieldReader& fields, std::string_view name, std::size_t max_count,
                     std::optional<ApiError>& refusal, Each each) {
  JsonValue* const value = fields.find(name);
  auto* const array = value ? value->as<JsonArray>() : nullptr;
  if (!array) return;
  if (array->size() > max_count)
    return fields.refuse(name, fields.path(name) + " has " + std::to_string(array->size()) + " entries; at most " +
                                   std::to_string(max_count) + " are taken");
  for (std::size_t i = 0; i < array->size() && !refusal; ++i) {
    const std::string place = fields.path(name) + '[' + std::to_string(i) + ']';
    auto* const object = (*array)[i].as<JsonObject>();
    if (!object) return fields.refuse(name, place + " must be an object");
    FieldReader reader(*object, refusal, place + '.');
    each(reader);
  }
}

}  // namespace troupe::ipc::api
