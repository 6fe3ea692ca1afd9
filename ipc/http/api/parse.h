// The parts of parse_call(), one for each kind of endpoint. Within the folder only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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
void parse_tools(Parsing& at);
// What the answer has to be, of the endpoints that generate.
void parse_form(Parsing& at);
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
