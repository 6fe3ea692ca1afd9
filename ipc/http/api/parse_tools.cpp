// Tools, in the three shapes in which the APIs offer them.
#include <fmt/format.h>

#include <utility>

#include "config/printable.h"
#include "ipc/http/api/parse.h"
#include "ipc/http/json/json_writer.h"
#include "ipc/tools/request_tools.h"

namespace troupe::ipc::api {
namespace {

// Chat Completions have a function within the tool, the others have its members in the tool itself.
bool is_nested(Endpoint endpoint) { return endpoint == Endpoint::chat_completions; }
bool is_anthropic(Endpoint endpoint) { return info(endpoint).dialect == Dialect::anthropic; }

const std::string* text_of(const JsonObject& object, std::string_view name) {
  const JsonValue* const member = find_member(object, name);
  return member != nullptr ? member->as<std::string>() : nullptr;
}

// "none", "auto", "required"; {"type": "function", "function": {"name": ...}} or {"type": "function", "name": ...};
// Anthropic's {"type": "auto" | "any" | "tool" | "none", "name": ...}.
ToolChoice read_choice(Parsing& at) {
  ToolChoice choice;
  at.fields.read("parallel_tool_calls", choice.use.may_call_several);
  const JsonValue* const given = at.fields.find("tool_choice");
  if (given == nullptr) return choice;
  const JsonObject* const object = given->as<JsonObject>();
  const std::string* const type = object != nullptr ? text_of(*object, "type") : given->as<std::string>();
  const auto refuse = [&](std::string_view what) {
    at.fields.refuse("tool_choice", fmt::format("tool_choice {}; it is {}", what,
                                                is_anthropic(at.call.endpoint)
                                                    ? "an object with the type auto, any, tool (with a name) or none"
                                                    : "none, auto, required, or a function by its name"));
  };
  if (type == nullptr) return refuse("has no type"), choice;
  if (object != nullptr)
    if (const JsonValue* const single = find_member(*object, "disable_parallel_tool_use"))
      choice.use.may_call_several = single->as<bool>() == nullptr || !*single->as<bool>();
  if (*type == "none") {
    choice.none = true;
  } else if (*type == "required" || *type == "any") {
    choice.use.must_call = true;
  } else if (*type == "function" || *type == "tool") {
    const JsonValue* const function = is_nested(at.call.endpoint) ? find_member(*object, "function") : given;
    const JsonObject* const members = function != nullptr ? function->as<JsonObject>() : nullptr;
    const std::string* const name = members != nullptr ? text_of(*members, "name") : nullptr;
    if (name == nullptr) return refuse("names no function"), choice;
    choice.use.must_call = true;
    choice.use.name = *name;
  } else if (*type != "auto") {
    refuse(fmt::format("is {}", Printable(*type, kMaxNameBytes).text()));
  }
  return choice;
}

// One tool in the form of Chat Completions, which chat templates read.
void write_tool(Parsing& at, JsonWriter& json, const JsonValue& tool, std::size_t index, bool must_call) {
  const auto refuse = [&](std::string_view what) {
    at.fields.refuse("tools", fmt::format("tools[{}]{}", index, what));
  };
  const JsonObject* const object = tool.as<JsonObject>();
  if (object == nullptr) return refuse(" must be an object");
  const std::string* const type = text_of(*object, "type");
  if (type != nullptr && *type == "custom" && !is_anthropic(at.call.endpoint))
    return refuse(" is custom; send a function, whose one parameter is the text");
  const JsonValue* const nested = is_nested(at.call.endpoint) ? find_member(*object, "function") : &tool;
  const JsonObject* const function = nested != nullptr ? nested->as<JsonObject>() : nullptr;
  if (function == nullptr) return refuse(".function is missing");
  const JsonValue* const strict = find_member(*function, "strict");
  if (must_call && strict != nullptr && strict->as<bool>() != nullptr && *strict->as<bool>())
    return refuse(" is strict, and tool_choice demands a call: calls are not held to a schema yet; leave strict out");
  json.begin_object().field("type", "function").key("function").begin_object();
  for (const JsonMember& each : *function) {
    const std::string_view name = each.key == "input_schema" ? std::string_view("parameters") : each.key;
    const bool is_known = name == "name" || name == "description" || name == "parameters" || name == "return";
    if (is_known && !each.value.is_null()) json.key(name).value(each.value);
  }
  json.end_object().end_object();
}

}  // namespace

bool is_other_tool(const JsonObject& tool) {
  const std::string* const type = text_of(tool, "type");
  return type != nullptr && *type != "function" && *type != "custom";
}

void parse_tools(Parsing& at) {
  if (at.call.endpoint == Endpoint::apply_template) return;
  ToolChoice choice = read_choice(at);
  const JsonValue* const tools = at.fields.find("tools");
  const JsonArray* const list = tools != nullptr ? tools->as<JsonArray>() : nullptr;
  if (choice.none) return;
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (std::size_t i = 0; list != nullptr && i < list->size() && !at.refusal; ++i)
    if (const JsonObject* const object = (*list)[i].as<JsonObject>(); object == nullptr || !is_other_tool(*object))
      write_tool(at, json, (*list)[i], i, choice.use.must_call);
  json.end_array();
  const bool has_others_alone = text == "[]" && list != nullptr && !list->empty();
  if (at.refusal || has_others_alone) return;
  auto refused = take_tools(at.call.request, std::move(text), std::move(choice));
  if (!refused) return;
  constexpr std::string_view kFunction = ".function";
  if (const std::size_t place = refused->message.find(kFunction);
      !is_nested(at.call.endpoint) && place != std::string::npos)
    refused->message.erase(place, kFunction.size());
  at.fields.refuse(refused->field, refused->message);
}

}  // namespace troupe::ipc::api
