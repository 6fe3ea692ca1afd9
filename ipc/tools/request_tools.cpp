#include "ipc/tools/request_tools.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <variant>

#include "actors/requests/answer_form.h"
#include "config/printable.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/chat/values/json.h"
#include "ipc/http/json/json_value.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc {

using api::JsonWriter;
using engine::chat::ToolSet;
using scheduler::Refusal;

std::optional<Refusal> take_tools(actors::Request& request, std::string list, ToolChoice choice,
                                  std::span<const std::string> places) {
  if (list.empty() || list == "[]") {
    if (!choice.use.must_call) return std::nullopt;
    return scheduler::invalid("tool_choice", "tool_choice demands a call, and there are no tools");
  }
  if (choice.none) return std::nullopt;
  if (list.size() > engine::chat::kMaxToolBytes) {
    Refusal refusal = scheduler::invalid(
        "tools", fmt::format("tools have {} bytes; at most {} are taken", list.size(), engine::chat::kMaxToolBytes));
    refusal.limit = engine::chat::kMaxToolBytes;
    return refusal;
  }
  const auto parsed = engine::chat::parse_json(list);
  auto set = parsed ? ToolSet::make(*parsed, places) : Result<ToolSet>(parsed.error());
  if (!set) return scheduler::invalid("tools", set.error().message);
  if (!choice.use.name.empty() && !set->has(choice.use.name))
    return scheduler::invalid("tool_choice", fmt::format("tool_choice names '{}', which is none of the tools",
                                                         Printable(choice.use.name).text()));
  using engine::constraints::Constraint;
  const bool is_strict = !choice.strict.empty();
  choice.use.set = std::make_shared<const ToolSet>(*std::move(set));
  choice.use.form =
      std::make_shared<actors::AnswerForm>(Constraint{.kind = Constraint::Kind::calls,
                                                      .text = list,
                                                      .calls = {.must_call = choice.use.must_call,
                                                                .name = choice.use.name,
                                                                .may_call_several = choice.use.may_call_several,
                                                                .strict = std::move(choice.strict)}},
                                           "tools", !is_strict);
  std::get<actors::ChatPrompt>(request.prompt).tools = std::move(list);
  request.tools = std::move(choice.use);
  return std::nullopt;
}

Result<std::string> tool_list(std::span<const OfferedTool> tools) {
  std::string list;
  JsonWriter json(list);
  json.begin_array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const OfferedTool& tool = tools[i];
    json.begin_object().field("type", "function").key("function").begin_object().field("name", tool.name);
    if (!tool.description.empty()) json.field("description", tool.description);
    if (!tool.parameters.empty()) {
      const auto parameters = api::read_json(tool.parameters, "the text");
      if (!parameters || parameters->as<api::JsonObject>() == nullptr)
        return Error{ErrorCode::invalid_argument,
                     fmt::format("tools[{}].parameters must be a JSON object{}", i,
                                 parameters ? std::string() : ": " + parameters.error().message)};
      json.key("parameters").value(*parameters);
    }
    json.end_object().end_object();
  }
  json.end_array();
  return list;
}

std::string called_tools(const std::vector<EarlierCall>& calls) {
  if (calls.empty()) return {};
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("tool_calls").begin_array();
  for (const EarlierCall& each : calls) {
    json.begin_object().field("id", each.id).field("type", "function").key("function").begin_object();
    json.field("name", each.name).raw_field("arguments", each.arguments).end_object().end_object();
  }
  json.end_array().end_object();
  return out;
}

actors::ChatMessage tool_result(const CalledNames& names, const std::string& id, std::string content, bool is_error) {
  const auto name = names.find(id);
  actors::ChatMessage message{.role = "tool",
                              .content = is_error ? "Error: " + std::move(content) : std::move(content),
                              .name = name == names.end() ? "" : name->second};
  JsonWriter json(message.members);
  json.begin_object().field("tool_call_id", id).end_object();
  return message;
}

std::string arguments_object(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "{}";
  const auto read = api::read_json(text, "the text");
  if (read && read->as<api::JsonObject>() != nullptr) return api::to_json(*read);
  std::string out;
  JsonWriter(out).begin_object().field("incomplete", text).end_object();
  return out;
}

}  // namespace troupe::ipc
