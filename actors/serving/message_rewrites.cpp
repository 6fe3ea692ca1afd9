#include "actors/serving/message_rewrites.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/chat/tools/call_id.h"
#include "engine/chat/tools/json_text.h"

namespace troupe::actors {
namespace {

using engine::chat::Json;
using engine::chat::MessageForm;
using engine::chat::ToolForm;

// What a model is told that was not trained for tools; calls have the generic format's marks.
std::string instructions(const Json::List& tools) {
  std::string text =
      "# Tools\n\nYou may call functions to help the user. These are there, each described by JSON on a line of its "
      "own:\n<tools>\n";
  for (const Json& each : tools) text += engine::chat::json_text(each) + "\n";
  text +=
      "</tools>\n\nTo call a function, write its name and arguments as JSON between these marks, once for each "
      "call:\n<tool_call>\n{\"name\": \"function name\", \"arguments\": {\"argument name\": "
      "value}}\n</tool_call>\nThen stop, and wait for the result. If no function helps, answer as usual.";
  return text;
}

void append(ChatMessage& message, std::string_view text, std::string_view between) {
  if (!message.content.empty()) message.content += between;
  message.content += text;
  if (!message.part_bytes.empty()) message.part_bytes.clear();
  message.has_content = true;
}

bool is_of_system(const ChatMessage& message) { return message.role == "system" || message.role == "developer"; }

// The tools go where instructions of the system stand.
void add_tools(RewrittenMessages& all, const Json::List& tools) {
  if (!all.messages.empty() && is_of_system(all.messages.front()))
    return append(all.messages.front(), instructions(tools), "\n\n");
  all.messages.insert(all.messages.begin(), {.role = "system", .content = instructions(tools)});
  all.origins.insert(all.origins.begin(), 0);
}

void join(ChatMessage& to, const ChatMessage& from) {
  if (!from.content.empty()) append(to, from.content, "\n\n");
  to.has_content = to.has_content || from.has_content;
  if (!to.reasoning.empty() && !from.reasoning.empty()) to.reasoning += "\n\n";
  to.reasoning += from.reasoning;
  if (to.name.empty()) to.name = from.name;
  if (to.members.empty()) to.members = from.members;
}

// Two that say nothing but texts, by the same speaker.
bool are_alike(const ChatMessage& a, const ChatMessage& b) {
  return a.role == b.role && a.name == b.name && a.members.empty() && b.members.empty();
}

RewrittenMessages in_places_that_are_taken(RewrittenMessages all, const MessageForm& form) {
  RewrittenMessages taken;
  bool is_leading = form.reads("system");  // no message of others came yet
  bool follows_moved = false;              // the message before is the user's, of texts of the system alone
  for (std::size_t i = 0; i < all.messages.size(); ++i) {
    ChatMessage& message = all.messages[i];
    is_leading = is_leading && is_of_system(message);
    const bool moves = is_of_system(message) && !is_leading && !form.takes_later_system;
    if (moves) message = {.role = "user", .content = std::move(message.content)};
    ChatMessage* const last = taken.messages.empty() ? nullptr : &taken.messages.back();
    bool joins = false;
    if (last != nullptr && is_leading)
      joins = !form.takes_second_system;
    else if (last != nullptr && (moves || follows_moved))
      joins = last->role == "user" && message.role == "user";
    else if (last != nullptr)
      joins = are_alike(*last, message) && !form.takes_neighbours(message.role);
    follows_moved = moves && (!joins || follows_moved);
    if (joins) {
      join(*last, message);
    } else {
      taken.messages.push_back(std::move(message));
      taken.origins.push_back(all.origins[i]);
    }
  }
  return taken;
}

Result<std::string> calls_as_text(const std::string& members, const engine::chat::ToolFormat& format) {
  const auto parsed = engine::chat::parse_json(members);
  if (!parsed) return parsed.error();
  std::vector<engine::chat::WrittenCall> calls;
  const Json* const list = parsed->find("tool_calls");
  if (list == nullptr || list->list() == nullptr) return std::string();
  for (const Json& each : *list->list()) {
    const Json* const function = each.find("function");
    const Json* const name = function != nullptr ? function->find("name") : nullptr;
    const Json* const arguments = function != nullptr ? function->find("arguments") : nullptr;
    if (name == nullptr || name->text() == nullptr) continue;
    std::string text = arguments == nullptr           ? "{}"
                       : arguments->text() != nullptr ? *arguments->text()
                                                      : engine::chat::json_text(*arguments);
    calls.push_back({*name->text(), std::move(text)});
  }
  return engine::chat::write_calls(format, calls);
}

}  // namespace

Result<RewrittenMessages> as_template_reads(std::span<const ChatMessage> messages, const Json::List& tools,
                                            const MessageForm& form, const ToolForm& tool_form) {
  RewrittenMessages read;
  bool follows_result = false;
  const auto keep = [&](ChatMessage message, std::size_t origin) {
    read.messages.push_back(std::move(message));
    read.origins.push_back(origin);
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& each = messages[i];
    const bool is_result = each.role == "tool" && !form.reads("tool");
    if (tool_form.text_beside_calls == ToolForm::TextBesideCalls::message_before && !each.members.empty() &&
        !each.content.empty() && each.role == "assistant") {
      ChatMessage spoken = each, called = each;
      spoken.members.clear();
      called.content.clear();
      called.part_bytes.clear();
      called.reasoning.clear();
      keep(std::move(spoken), i);
      keep(std::move(called), i);
      continue;
    }
    if (tool_form.reads_calls || (!is_result && each.members.empty() && !follows_result)) {
      keep(each, i);
      continue;
    }
    ChatMessage message = each;
    if (is_result) {
      message = {.role = "user", .content = fmt::format("<tool_response>\n{}\n</tool_response>", each.content)};
    } else if (!each.members.empty()) {
      const auto calls = calls_as_text(each.members, *tool_form.format);
      if (!calls) return calls.error();
      message.members.clear();
      if (!calls->empty()) append(message, *calls, "\n");
    }
    // Many templates want the user and the assistant to take turns.
    if (follows_result && message.role == "user")
      append(read.messages.back(), message.content, "\n");
    else
      keep(std::move(message), i);
    follows_result = is_result || (follows_result && each.role == "user");
  }
  if (!tools.empty() && !tool_form.reads_tools) add_tools(read, tools);
  return in_places_that_are_taken(std::move(read), form);
}

void write_arguments_as_text(Json& calls) {
  auto* const list = std::get_if<Json::List>(&calls.value);
  if (list == nullptr) return;
  for (Json& call : *list) {
    auto* const members = std::get_if<Json::Object>(&call.value);
    if (members == nullptr) continue;
    for (auto& [name, function] : *members) {
      auto* const parts = name == "function" ? std::get_if<Json::Object>(&function.value) : nullptr;
      if (parts == nullptr) continue;
      for (auto& [part, value] : *parts)
        if (part == "arguments" && value.text() == nullptr) value = Json(engine::chat::json_text(value));
    }
  }
}

void write_short_ids(std::pair<std::string, Json>& member) {
  const auto shorten = [](Json& id) {
    if (id.text() != nullptr) id = Json(engine::chat::call_id_for(*id.text()));
  };
  if (member.first == "tool_call_id") return shorten(member.second);
  auto* const calls = member.first == "tool_calls" ? std::get_if<Json::List>(&member.second.value) : nullptr;
  if (calls == nullptr) return;
  for (Json& call : *calls)
    if (auto* const members = std::get_if<Json::Object>(&call.value))
      for (auto& [name, value] : *members)
        if (name == "id") shorten(value);
}

}  // namespace troupe::actors
