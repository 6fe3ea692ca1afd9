// Tools, in the shapes in which the APIs offer them.
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

// What a request chooses of its tools.
struct Choice : ToolChoice {
  bool is_custom = false;  // the tool that it names
};

// "none", "auto", "required"; {"type": "function", "function": {"name": ...}} or {"type": "function", "name": ...}, and
// custom in place of function; Anthropic's {"type": "auto" | "any" | "tool" | "none", "name": ...}.
Choice read_choice(Parsing& at) {
  Choice choice;
  at.fields.read("parallel_tool_calls", choice.use.may_call_several);
  const JsonValue* const given = at.fields.find("tool_choice");
  if (given == nullptr) return choice;
  const JsonObject* const object = given->as<JsonObject>();
  const std::string* const type = object != nullptr ? text_of(*object, "type") : given->as<std::string>();
  const auto refuse = [&](std::string_view what) {
    at.fields.refuse("tool_choice", fmt::format("tool_choice {}; it is {}", what,
                                                is_anthropic(at.call.endpoint)
                                                    ? "an object with the type auto, any, tool (with a name) or none"
                                                    : "none, auto, required, or a tool by its name"));
  };
  if (type == nullptr) return refuse("has no type"), choice;
  if (object != nullptr)
    if (const JsonValue* const single = find_member(*object, "disable_parallel_tool_use"))
      choice.use.may_call_several = single->as<bool>() == nullptr || !*single->as<bool>();
  choice.is_custom = *type == "custom" && !is_anthropic(at.call.endpoint);
  if (*type == "none") {
    choice.none = true;
  } else if (*type == "required" || *type == "any") {
    choice.use.must_call = true;
  } else if (object != nullptr && (*type == "function" || *type == "tool" || choice.is_custom)) {
    const JsonValue* const named = is_nested(at.call.endpoint) ? find_member(*object, *type) : given;
    const JsonObject* const members = named != nullptr ? named->as<JsonObject>() : nullptr;
    const std::string* const name = members != nullptr ? text_of(*members, "name") : nullptr;
    if (name == nullptr) return refuse("names no tool"), choice;
    choice.use.must_call = true;
    choice.use.name = *name;
  } else if (*type != "auto") {
    refuse(fmt::format("is {}", Printable(*type, kMaxNameBytes).text()));
  }
  return choice;
}

// The tools of a request in the form of Chat Completions, which chat templates read: those of namespaces stand among
// the others, and a custom tool is a function of one text.
class ToolWriter {
 public:
  explicit ToolWriter(Parsing& at) : at_(at) { json_.begin_array(); }

  void add_all(const JsonArray& list, const std::string& where, const JsonObject* name_space = nullptr) {
    for (std::size_t i = 0; i < list.size() && !at_.refusal; ++i) {
      place_ = fmt::format("{}[{}]", where, i);
      const JsonObject* const tool = list[i].as<JsonObject>();
      if (tool == nullptr) return refuse(" must be an object");
      if (is_other_tool(at_.call.endpoint, *tool, name_space != nullptr)) continue;
      const std::string* const type = text_of(*tool, "type");
      if (type != nullptr && *type == "namespace")
        add_namespace(*tool);
      else
        add(*tool, type != nullptr && *type == "custom" && !is_anthropic(at_.call.endpoint), name_space);
    }
  }
  std::string end() {
    json_.end_array();
    return std::move(text_);
  }
  // Of each tool: where it stands in the request.
  const std::vector<std::string>& places() const { return places_; }
  // The names of those that are strict.
  std::vector<std::string> take_strict() { return std::move(strict_); }

 private:
  void refuse(std::string_view what) { at_.fields.refuse("tools", place_ + std::string(what)); }

  void add_namespace(const JsonObject& name_space) {
    const JsonValue* const tools = find_member(name_space, "tools");
    if (text_of(name_space, "name") == nullptr) return refuse(" has no name");
    if (tools == nullptr) return refuse(" has no tools");
    if (const std::string* const about = text_of(name_space, "description")) about_namespace_ = *about;
    add_all(*tools->as<JsonArray>(), place_ + ".tools", &name_space);
    about_namespace_.clear();
  }

  void add(const JsonObject& tool, bool is_custom, const JsonObject* name_space) {
    const JsonValue* const nested =
        is_nested(at_.call.endpoint) ? find_member(tool, custom_or_function(is_custom)) : nullptr;
    const JsonObject* const members = nested != nullptr ? nested->as<JsonObject>() : &tool;
    if (is_nested(at_.call.endpoint) && nested == nullptr)
      return refuse(fmt::format(".{} is missing", custom_or_function(is_custom)));
    places_.push_back(place_);
    json_.begin_object().field("type", "function").key("function").begin_object();
    for (const JsonMember& each : *members) write_member(each, is_custom, name_space);
    if (!about_namespace_.empty()) json_.field("description", std::exchange(about_namespace_, {}));
    if (is_custom)
      json_.raw_field("parameters",
                      R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"]})");
    json_.end_object().end_object();
    remember(*members, is_custom, name_space);
    const JsonValue* const strict = find_member(*members, "strict");
    const std::string* const name = text_of(*members, "name");
    if (name != nullptr && strict != nullptr && strict->as<bool>() != nullptr && *strict->as<bool>())
      strict_.push_back(name_within(name_space != nullptr ? *text_of(*name_space, "name") : std::string(), *name));
  }

  void write_member(const JsonMember& member, bool is_custom, const JsonObject* name_space) {
    const std::string_view name = member.key == "input_schema" ? std::string_view("parameters") : member.key;
    const std::string* const text = member.value.as<std::string>();
    if (member.value.is_null()) return;
    if (name == "name" && text != nullptr && name_space != nullptr)
      return void(json_.field(name, name_within(*text_of(*name_space, "name"), *text)));
    // A namespace is described before the first of its tools.
    if (name == "description" && text != nullptr && !about_namespace_.empty())
      return void(json_.field(name, std::exchange(about_namespace_, {}) + "\n\n" + *text));
    if (name == "name" || name == "description" || (!is_custom && (name == "parameters" || name == "return")))
      json_.key(name).value(member.value);
  }

  void remember(const JsonObject& members, bool is_custom, const JsonObject* name_space) {
    const std::string* const name = text_of(members, "name");
    if (name == nullptr || (!is_custom && name_space == nullptr)) return;
    const std::string within = name_space != nullptr ? *text_of(*name_space, "name") : std::string();
    at_.call.client_tools[name_within(within, *name)] = {.name = *name, .name_space = within, .is_custom = is_custom};
  }

  static const char* custom_or_function(bool is_custom) { return is_custom ? "custom" : "function"; }

  Parsing& at_;
  std::string text_;
  JsonWriter json_{text_};
  std::vector<std::string> places_, strict_;
  std::string place_;            // of the tool that is being read
  std::string about_namespace_;  // not written yet
};

// Whether the tool that a request demands a call of is of the kind that it says.
void check_named(Parsing& at, bool is_custom) {
  if (!at.call.request.tools || at.call.request.tools->name.empty()) return;
  const std::string& name = at.call.request.tools->name;
  const auto found = at.call.client_tools.find(name);
  const bool is_offered_custom = found != at.call.client_tools.end() && found->second.is_custom;
  if (is_offered_custom != is_custom)
    at.fields.refuse("tool_choice",
                     fmt::format("tool_choice names '{}', which is {}", Printable(name, kMaxNameBytes).text(),
                                 is_custom ? "a function, not custom" : "a custom tool; its type is custom"));
}

}  // namespace

bool is_other_tool(Endpoint endpoint, const JsonObject& tool, bool in_namespace) {
  const std::string* const type = text_of(tool, "type");
  if (type == nullptr || *type == "function" || *type == "custom") return false;
  return *type != "namespace" || endpoint != Endpoint::responses || in_namespace;
}

std::string name_within(std::string_view name_space, std::string_view name) {
  if (name_space.empty()) return std::string(name);
  const bool is_apart = name_space.ends_with("__") || name.starts_with("__");
  return fmt::format("{}{}{}", name_space, is_apart ? "" : "__", name);
}

void parse_tools(Parsing& at) {
  if (at.call.endpoint == Endpoint::apply_template) return;
  Choice choice = read_choice(at);
  const JsonValue* const tools = at.fields.find("tools");
  const JsonArray* const list = tools != nullptr ? tools->as<JsonArray>() : nullptr;
  if (choice.none) return;
  ToolWriter writer(at);
  if (list != nullptr) writer.add_all(*list, "tools");
  std::string text = writer.end();
  if (at.refusal) return;
  if (writer.places().empty() && list != nullptr && !list->empty()) {
    if (choice.use.must_call)
      at.fields.refuse("tool_choice", "tool_choice demands a call, and the tools are none that a client runs");
    return;
  }
  const bool is_custom = choice.is_custom;
  choice.strict = writer.take_strict();
  auto refused = take_tools(at.call.request, std::move(text), std::move(choice), writer.places());
  if (!refused) return check_named(at, is_custom);
  constexpr std::string_view kFunction = ".function";
  if (const std::size_t place = refused->message.find(kFunction);
      !is_nested(at.call.endpoint) && place != std::string::npos)
    refused->message.erase(place, kFunction.size());
  at.fields.refuse(refused->field, refused->message);
}

}  // namespace troupe::ipc::api
