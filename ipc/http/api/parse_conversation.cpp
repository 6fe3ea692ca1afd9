#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

#include "config/printable.h"
#include "ipc/http/api/custom_input.h"
#include "ipc/http/api/parse.h"
#include "ipc/http/json/json_writer.h"
#include "ipc/tools/request_tools.h"

namespace troupe::ipc::api {
namespace {

using actors::ChatMessage;
using actors::ChatPrompt;

// Variables that a template gets from elsewhere.
constexpr std::array kReservedArguments{"messages", "add_generation_prompt", "tools", "bos_token", "eos_token"};

// Variables of a template, by name; a later value of a name replaces an earlier one.
class TemplateArguments {
 public:
  void set(std::string_view name, std::string json) {
    const auto old = std::ranges::find(values_, name, &std::pair<std::string, std::string>::first);
    if (old != values_.end())
      old->second = std::move(json);
    else
      values_.emplace_back(name, std::move(json));
  }
  std::string text() const {
    if (values_.empty()) return {};
    std::string out;
    JsonWriter json(out);
    json.begin_object();
    for (const auto& [name, value] : values_) json.raw_field(name, value);
    json.end_object();
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

// Templates have two names for it.
void set_thinking(TemplateArguments& arguments, bool enabled) {
  arguments.set("enable_thinking", enabled ? "true" : "false");
  arguments.set("thinking", enabled ? "true" : "false");
}

void set_effort(TemplateArguments& arguments, const std::string& effort) {
  if (effort.empty()) return;
  set_thinking(arguments, effort != "none");
  if (effort != "none") arguments.set("reasoning_effort", to_json(effort));
}

void set_budget(Parsing& at, FieldReader& fields, std::string_view name) {
  if (!fields.has(name)) return;
  std::uint32_t tokens = 0;
  fields.read(name, tokens);
  auto& budget = at.call.request.sampling.reasoning_budget;
  if (budget && budget->num_tokens != tokens)
    return fields.refuse(name, "thinking_token_budget and reasoning.max_tokens are two names of one thing; send one");
  budget = engine::ReasoningBudget{.num_tokens = tokens};
}

void read_openai_reasoning(Parsing& at, TemplateArguments& arguments) {
  std::string effort;
  set_budget(at, at.fields, "thinking_token_budget");
  at.fields.read("reasoning_effort", effort);
  JsonValue* const reasoning = at.fields.find("reasoning");
  if (!reasoning) return set_effort(arguments, effort);
  if (!effort.empty())
    return at.fields.refuse("reasoning_effort",
                            "reasoning and reasoning_effort are two ways to say the same; send one");
  FieldReader fields(*reasoning->as<JsonObject>(), at.refusal, "reasoning.");
  at.call.echoed.reasoning = to_json(*reasoning);
  bool enabled = true;
  const bool says_enabled = fields.has("enabled");
  set_budget(at, fields, "max_tokens");
  fields.read("enabled", enabled);
  fields.read("effort", effort);
  set_effort(arguments, effort);
  if (!says_enabled) return;
  if (!effort.empty() && enabled != (effort != "none"))
    return fields.refuse("enabled", "reasoning.enabled and reasoning.effort contradict each other; send one");
  set_thinking(arguments, enabled);
}

void read_anthropic_thinking(Parsing& at, TemplateArguments& arguments) {
  JsonValue* const thinking = at.fields.find("thinking");
  std::string type = "disabled";
  if (thinking) {
    FieldReader fields(*thinking->as<JsonObject>(), at.refusal, "thinking.");
    fields.read("type", type);
    if (fields.has("budget_tokens")) {
      std::uint32_t budget = 0;
      fields.read("budget_tokens", budget, 1);
      if (type != "enabled") return fields.refuse("budget_tokens", "thinking.budget_tokens is for thinking enabled");
      if (budget == 0 || (at.call.endpoint == Endpoint::messages && budget >= at.call.request.sampling.max_tokens))
        return fields.refuse("budget_tokens", "thinking.budget_tokens must be at least 1 and below max_tokens");
      arguments.set("thinking_budget", std::to_string(budget));
      at.call.request.sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = budget};
    }
  }
  at.call.show_reasoning = type != "disabled";
  set_thinking(arguments, type != "disabled");
  JsonValue* const output = at.fields.find("output_config");
  if (!output) return;
  std::string effort;
  FieldReader(*output->as<JsonObject>(), at.refusal, "output_config.").read("effort", effort);
  if (!effort.empty()) arguments.set("reasoning_effort", to_json(effort));
}

// What a message says, into `out`: a string, or an array of parts with `text`, which are joined by newlines. Refuses
// what is neither.
//   type  of parts that are read; parts of other types are left to the caller. Empty: of all
void read_content(FieldReader& message, std::string_view name, ChatMessage& out, std::string_view type = {}) {
  JsonValue* const content = message.find(name);
  out.has_content = content != nullptr;
  if (!content) return;
  if (auto* const text = content->as<std::string>()) return void(out.content = std::move(*text));
  auto* const parts = content->as<JsonArray>();
  if (parts->size() > kMaxContentParts)
    return message.refuse(name, fmt::format("{} has {} parts; at most {} are taken", message.path(name), parts->size(),
                                            kMaxContentParts));
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const auto refuse = [&](std::string_view what) {
      message.refuse(name, fmt::format("{}[{}] {}", message.path(name), i, what));
    };
    auto* const part = (*parts)[i].as<JsonObject>();
    if (!part) {
      refuse("must be an object");
      break;
    }
    const JsonValue* const kind = find_member(*part, "type");
    if (!type.empty() && kind && *kind->as<std::string>() != type) continue;
    const JsonValue* const text = find_member(*part, "text");
    if (!text) {
      refuse("has no text");
      break;
    }
    if (!out.part_bytes.empty()) out.content += '\n';
    out.content += *text->as<std::string>();
    out.part_bytes.push_back(static_cast<std::uint32_t>(text->as<std::string>()->size()));
  }
  if (out.part_bytes.size() < 2) out.part_bytes.clear();
}

// {"type": "custom", "custom": {"name", "input"}} becomes the call of a function, for templates.
void read_custom_call(JsonObject& call) {
  for (JsonMember& member : call) {
    auto* const custom = member.key == "custom" ? member.value.as<JsonObject>() : nullptr;
    if (member.key == "type") member.value = JsonValue(std::string("function"));
    if (custom == nullptr) continue;
    member.key = "function";
    for (JsonMember& each : *custom) {
      if (each.key != "input") continue;
      each.key = "arguments";
      if (const auto* const input = each.value.as<std::string>()) each.value = JsonValue(custom_arguments(*input));
    }
  }
}

// Clients send a call's arguments as text of JSON, and templates write them as an object.
void read_call(FieldReader& message, JsonValue& call, const std::string& place, CalledNames& names) {
  auto* const object = call.as<JsonObject>();
  if (object != nullptr && find_member(*object, "custom") != nullptr) read_custom_call(*object);
  JsonValue* const function = object ? find_member(*object, "function") : nullptr;
  auto* const members = function ? function->as<JsonObject>() : nullptr;
  if (!members) return message.refuse("tool_calls", place + " must be an object with the member function or custom");
  const JsonValue *const id = find_member(*object, "id"), *const name = find_member(*members, "name");
  if (id != nullptr && name != nullptr) names[*id->as<std::string>()] = *name->as<std::string>();
  JsonValue* const arguments = find_member(*members, "arguments");
  auto* const text = arguments ? arguments->as<std::string>() : nullptr;
  if (!text) return;
  if (auto object_of_text = read_json(arguments_object(*text), "the text")) *arguments = *std::move(object_of_text);
}

// What only tools have. As JSON, since a template alone knows what to do with it.
std::string read_tool_members(FieldReader& fields, ChatMessage& message, CalledNames& names) {
  const std::string& role = message.role;
  TemplateArguments members;
  JsonValue* const calls = fields.find("tool_calls");
  if (calls && !calls->as<JsonArray>()->empty()) {
    if (role != "assistant") fields.refuse("tool_calls", "tool_calls are a part of the assistant's messages only");
    auto& list = *calls->as<JsonArray>();
    for (std::size_t i = 0; i < list.size(); ++i)
      read_call(fields, list[i], fmt::format("{}[{}]", fields.path("tool_calls"), i), names);
    members.set("tool_calls", to_json(*calls));
  }
  if (const JsonValue* const id = fields.find("tool_call_id")) {
    if (role != "tool") fields.refuse("tool_call_id", "tool_call_id is a part of a tool's messages only");
    if (const auto name = names.find(*id->as<std::string>()); name != names.end() && message.name.empty())
      message.name = name->second;
    members.set("tool_call_id", to_json(*id));
  }
  return members.text();
}

ChatMessage read_chat_message(FieldReader& fields, CalledNames& names) {
  ChatMessage message;
  fields.read("role", message.role);
  read_content(fields, "content", message);
  fields.read_short("name", message.name, kMaxNameBytes);
  for (const char* name : {"reasoning_content", "reasoning"})  // the second is vLLM's
    if (fields.has(name) && message.role != "assistant")
      fields.refuse(name, fmt::format("{} is a part of the assistant's messages only", name));
  const bool has_both = fields.has("reasoning_content") && fields.has("reasoning");
  fields.read("reasoning_content", message.reasoning);
  std::string reasoning = message.reasoning;
  fields.read("reasoning", reasoning);
  if (has_both && reasoning != message.reasoning)
    fields.refuse("reasoning", "reasoning and reasoning_content are two names of one thing and differ; send one");
  message.reasoning = std::move(reasoning);
  message.members = read_tool_members(fields, message, names);
  if (!fields.has("content") && message.role != "assistant")
    fields.refuse("content", fmt::format("{} is missing", fields.path("content")));
  return message;
}

void append_line(std::string& out, const std::string& text) {
  if (!out.empty() && !text.empty()) out += "\n\n";
  out += text;
}

// A block of a message of Anthropic's that is no text.
struct BlockReader {
  std::optional<ApiError>& refusal;
  const ChatMessage& message;
  CalledNames& names;
  std::string thinking{};
  std::vector<EarlierCall> calls{};
  std::vector<ChatMessage> results{};

  void read(FieldReader& block) {
    std::string type;
    block.read("type", type);
    if (type == "thinking") return read_thinking(block);
    if (type == "tool_use") return read_call(block);
    if (type == "tool_result") return read_result(block);
    if (type == "text" && !block.has("text")) block.refuse("text", block.path("text") + " is missing");
    if (block.has("thinking") || block.has("signature"))
      block.refuse("type", block.path("type") + " is text, and the block has thinking");
  }

 private:
  void require(FieldReader& block, std::string_view name) const {
    if (!block.has(name)) block.refuse(name, block.path(name) + " is missing");
  }
  void read_thinking(FieldReader& block) {
    if (message.role != "assistant") block.refuse("type", "thinking is a part of the assistant's messages only");
    require(block, "thinking");
    std::string text;
    block.read("thinking", text);
    append_line(thinking, text);
  }
  void read_call(FieldReader& block) {
    if (message.role != "assistant") block.refuse("type", "tool_use is a part of the assistant's messages only");
    for (const char* const name : {"id", "name", "input"}) require(block, name);
    EarlierCall call{.arguments = "{}"};
    if (const JsonValue* const input = block.find("input")) call.arguments = to_json(*input);
    block.read("id", call.id);
    block.read("name", call.name);
    names[call.id] = call.name;
    calls.push_back(std::move(call));
  }
  // What a tool gave, as a message of its own.
  void read_result(FieldReader& block) {
    if (message.role != "user") block.refuse("type", "tool_result is a part of the user's messages only");
    require(block, "tool_use_id");
    std::string id;
    block.read("tool_use_id", id);
    ChatMessage said;
    read_content(block, "content", said, "text");
    bool is_error = false;
    block.read("is_error", is_error);
    results.push_back(tool_result(names, id, std::move(said.content), is_error));
  }
};

// A message of Anthropic's: its blocks of thinking and of calls come apart from the text, and results of tools are
// messages before it.
void read_anthropic_message(FieldReader& fields, std::optional<ApiError>& refusal, CalledNames& names,
                            std::vector<ChatMessage>& messages) {
  ChatMessage message;
  fields.read("role", message.role);
  read_content(fields, "content", message, "text");  // first: what follows moves the blocks' types out
  BlockReader blocks{.refusal = refusal, .message = message, .names = names};
  for_each_object(fields, "content", kMaxContentParts, refusal, [&](FieldReader& block) { blocks.read(block); });
  message.reasoning = std::move(blocks.thinking);
  message.members = called_tools(blocks.calls);
  if (!fields.has("content")) fields.refuse("content", fmt::format("{} is missing", fields.path("content")));
  const bool says_more = blocks.results.empty() || !message.content.empty();
  messages.insert(messages.end(), std::make_move_iterator(blocks.results.begin()),
                  std::make_move_iterator(blocks.results.end()));
  if (says_more) messages.push_back(std::move(message));
}

// An item of a response's input: a message; reasoning and calls, which belong to the assistant's message before or
// behind them; or what a tool gave.
class InputItems {
 public:
  explicit InputItems(ChatPrompt& chat) : chat_(chat) {}

  void add(FieldReader& fields) {
    std::string type = "message";
    fields.read("type", type);
    if (type == "reasoning") return add_reasoning(fields);
    if (type == "function_call" || type == "custom_tool_call") return add_call(fields, type == "custom_tool_call");
    end_calls();
    if (type == "function_call_output" || type == "custom_tool_call_output") return add_result(fields);
    ChatMessage message;
    fields.read("role", message.role);
    if (message.role.empty()) fields.refuse("role", fields.path("role") + " is missing");
    if (!fields.has("content")) fields.refuse("content", fields.path("content") + " is missing");
    read_content(fields, "content", message);
    if (message.role == "assistant") message.reasoning = std::exchange(reasoning_, {});
    chat_.messages.push_back(std::move(message));
  }
  void end() { end_calls(); }

 private:
  void add_reasoning(FieldReader& fields) {
    end_calls();
    if (fields.has("role")) fields.refuse("role", "an item of reasoning has no role");
    ChatMessage thought;
    read_content(fields, "content", thought);
    append_line(reasoning_, thought.content);
  }

  void require(FieldReader& fields, std::string_view name) const {
    if (!fields.has(name)) fields.refuse(name, fields.path(name) + " is missing");
  }
  void add_call(FieldReader& fields, bool is_custom) {
    const char* const argument = is_custom ? "input" : "arguments";
    for (const char* const name : {"call_id", "name", argument}) require(fields, name);
    EarlierCall call;
    std::string text, name_space;
    fields.read("call_id", call.id);
    fields.read("name", call.name);
    fields.read("namespace", name_space);
    call.name = name_within(name_space, call.name);
    fields.read(argument, text);
    call.arguments = is_custom ? custom_arguments(text) : arguments_object(text);
    names_[call.id] = call.name;
    calls_.push_back(std::move(call));
  }
  void add_result(FieldReader& fields) {
    for (const char* const name : {"call_id", "output"}) require(fields, name);
    std::string id;
    fields.read("call_id", id);
    ChatMessage said;
    read_content(fields, "output", said);
    chat_.messages.push_back(tool_result(names_, id, std::move(said.content)));
  }
  // The calls so far become a part of the assistant's message before them, or one of their own.
  void end_calls() {
    if (calls_.empty()) return;
    const bool has_text = !chat_.messages.empty() && chat_.messages.back().role == "assistant" &&
                          chat_.messages.back().members.empty() && reasoning_.empty();
    if (!has_text)
      chat_.messages.push_back(
          {.role = "assistant", .content = {}, .reasoning = std::exchange(reasoning_, {}), .has_content = false});
    chat_.messages.back().members = called_tools(std::exchange(calls_, {}));
  }

  ChatPrompt& chat_;
  std::string reasoning_;
  std::vector<EarlierCall> calls_;
  CalledNames names_;
};

// Above every limit.
constexpr std::uint32_t kAnyLogprobs = std::numeric_limits<std::int32_t>::max();

void parse_continuation(Parsing& at, ChatPrompt& chat) {
  at.fields.read("add_generation_prompt", chat.add_generation_prompt);
  at.fields.read("continue_final_message", chat.continue_final_message);
  if (!chat.continue_final_message) return;
  if (at.fields.has("add_generation_prompt") && chat.add_generation_prompt)
    return at.fields.refuse("continue_final_message",
                            "continue_final_message and add_generation_prompt exclude each other; send one");
  chat.add_generation_prompt = false;
}

// Whether a response includes logprobs. What else it may include is of tools and pictures, or is reasoning that is
// hidden from the client, and of these an answer has nothing here.
bool parse_include(Parsing& at) {
  constexpr std::array<std::string_view, 7> kNothingOf = {
      "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
      "message.input_image.image_url", "reasoning.encrypted_content",           "web_search_call.action.sources",
      "web_search_call.results"};
  constexpr std::string_view kLogprobs = "message.output_text.logprobs";
  std::vector<std::string> names;
  at.fields.read_strings("include", names, kNothingOf.size() + 1, false);
  bool has_logprobs = false;
  for (const std::string& each : names) {
    has_logprobs |= each == kLogprobs;
    if (each != kLogprobs && std::ranges::find(kNothingOf, each) == kNothingOf.end())
      at.fields.refuse("include",
                       fmt::format("include has \"{}\", which no API names; {} is served, and of {} there is "
                                   "nothing to include",
                                   Printable(each, kMaxNameBytes).text(), kLogprobs, fmt::join(kNothingOf, ", ")));
  }
  return has_logprobs;
}

void parse_chat_logprobs(Parsing& at) {
  at.fields.read("logprobs", at.call.logprobs);
  std::uint32_t top = 0;
  at.fields.read("top_logprobs", top, 0, engine::kMaxLogprobs);
  if (at.fields.has("top_logprobs") && !at.call.logprobs)
    return at.fields.refuse("top_logprobs", "top_logprobs is for answers with logprobs; set logprobs or leave it out");
  if (at.call.logprobs) at.call.request.sampling.num_logprobs = static_cast<std::int32_t>(std::min(top, kAnyLogprobs));
}

// Variables of the chat template: those of reasoning, and chat_template_kwargs.
void parse_template_arguments(Parsing& at, ChatPrompt& chat) {
  TemplateArguments arguments;
  if (info(at.call.endpoint).dialect == Dialect::anthropic)
    read_anthropic_thinking(at, arguments);
  else
    read_openai_reasoning(at, arguments);
  for (const char* name : {"documents", "tools"}) {
    const JsonValue* const value = at.fields.find(name);
    const bool reaches = value && (at.call.endpoint == Endpoint::apply_template || std::string_view(name) != "tools");
    if (reaches && !value->as<JsonArray>()->empty()) arguments.set(name, to_json(*value));
  }
  if (const JsonValue* const own = at.fields.find("chat_template_kwargs")) {
    for (const JsonMember& each : *own->as<JsonObject>()) {
      if (std::ranges::find(kReservedArguments, each.key) != kReservedArguments.end())
        return at.fields.refuse("chat_template_kwargs",
                                fmt::format("chat_template_kwargs must not set {}, which the server sets", each.key));
      arguments.set(each.key, to_json(each.value));
    }
  }
  chat.variables = arguments.text();
}

}  // namespace

void parse_chat(Parsing& at) {
  ChatPrompt& chat = at.call.request.prompt.emplace<ChatPrompt>();
  CalledNames names;
  for_each_object(at.fields, "messages", kMaxBodyMessages, at.refusal,
                  [&](FieldReader& fields) { chat.messages.push_back(read_chat_message(fields, names)); });
  if (chat.messages.empty()) at.fields.refuse("messages", "messages is empty; send at least one message");
  parse_continuation(at, chat);
  parse_tools(at);
  parse_template_arguments(at, chat);
  parse_chat_logprobs(at);
}

void parse_response(Parsing& at) {
  ChatPrompt& chat = at.call.request.prompt.emplace<ChatPrompt>();
  Echoed& echoed = at.call.echoed;
  const auto keep = [&](std::string_view name, std::string& out) {
    if (const JsonValue* const value = at.fields.find(name)) out = to_json(*value);
  };
  if (const JsonValue* const instructions = at.fields.find("instructions")) {
    echoed.instructions = to_json(*instructions);
    chat.messages.push_back({.role = "system", .content = *instructions->as<std::string>()});
  }
  const std::size_t num_before = chat.messages.size();
  if (const JsonValue* const input = at.fields.find("input"); input && input->as<std::string>()) {
    chat.messages.push_back({.role = "user", .content = *input->as<std::string>()});
  } else {
    InputItems items(chat);
    for_each_object(at.fields, "input", kMaxBodyMessages, at.refusal, [&](FieldReader& fields) { items.add(fields); });
    items.end();
  }
  if (chat.messages.size() == num_before) at.fields.refuse("input", "input has no message; send at least one");
  keep("tools", echoed.tools);
  keep("tool_choice", echoed.tool_choice);
  parse_tools(at);
  parse_template_arguments(at, chat);

  at.call.logprobs = parse_include(at);
  std::uint32_t top = 0;
  at.fields.read("top_logprobs", top, 0, engine::kMaxLogprobs);
  if (top > 0 && !at.call.logprobs)
    at.fields.refuse("top_logprobs", "top_logprobs needs include: [\"message.output_text.logprobs\"]");
  if (at.call.logprobs) at.call.request.sampling.num_logprobs = static_cast<std::int32_t>(std::min(top, kAnyLogprobs));
  keep("temperature", echoed.temperature);
  keep("top_p", echoed.top_p);
  keep("max_output_tokens", echoed.max_output_tokens);
  keep("top_logprobs", echoed.top_logprobs);
  keep("parallel_tool_calls", echoed.parallel_tool_calls);
}

void parse_messages(Parsing& at) {
  ChatPrompt& chat = at.call.request.prompt.emplace<ChatPrompt>();
  if (at.fields.has("system")) {
    ChatMessage& message = chat.messages.emplace_back();
    message.role = "system";
    read_content(at.fields, "system", message);
  }
  const std::size_t num_before = chat.messages.size();
  CalledNames names;
  for_each_object(at.fields, "messages", kMaxBodyMessages, at.refusal,
                  [&](FieldReader& fields) { read_anthropic_message(fields, at.refusal, names, chat.messages); });
  if (chat.messages.size() == num_before) at.fields.refuse("messages", "messages is empty; send at least one message");
  parse_tools(at);
  chat.continue_final_message =
      !chat.messages.empty() && chat.messages.back().role == "assistant" && chat.messages.back().members.empty();
  chat.add_generation_prompt = !chat.continue_final_message;
  parse_template_arguments(at, chat);
}

}  // namespace troupe::ipc::api
