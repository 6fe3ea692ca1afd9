#include "engine/chat/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/printable.h"
#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/syntax/parser.h"

namespace troupe::engine::chat {
namespace {

Error error_of(ErrorCode code, std::string_view name, const TemplateError& error) {
  const Place at = error.place();
  const std::string where = at.line > 0 ? fmt::format(", line {}, column {}", at.line, at.column) : "";
  return {code, fmt::format("chat template '{}'{}: {}", name, where,
                            error.message().empty() ? "an error without a message"
                                                    : Printable(error.message(), kMaxErrorText).text())};
}

// Roles that every template knows. They cannot be text that a user chose, so they may be part of a control token.
bool is_known_role(std::string_view role) {
  static constexpr std::array<std::string_view, 7> kRoles = {"system", "user",     "assistant", "tool",
                                                             "model",  "function", "developer"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

Value messages_value(Heap& heap, const Json& messages) {
  const Value list = heap.from_json(messages);
  if (!list.is(Kind::list)) throw TemplateError("'messages' must be a list");
  const Value role = heap.text("role");
  for (const Value& message : list.list().items) {
    if (!message.is(Kind::map)) throw TemplateError("each of 'messages' must be an object");
    const Value* const given = message.map().find("role");
    if (given != nullptr && given->is(Kind::text) && is_known_role(given->text().bytes()))
      heap.set(message.map(), role, heap.text(given->text().bytes()));
  }
  return list;
}

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
}

// Drops what follows the text of the last message. Templates may have trimmed it: white space behind it is kept as far
// as the prompt has it. Looks at the last input of the prompt alone, as an earlier message may have the same text.
void end_with_last_message(std::vector<PromptSegment>& segments, const Json& messages) {
  const auto& list = std::get<Json::List>(messages.value);
  const Json* const member = list.empty() ? nullptr : list.back().find("content");
  const std::string content = member != nullptr && member->text() != nullptr ? *member->text() : "";
  const std::string_view text = trimmed(content);
  if (text.empty()) throw TemplateError("the last message has no text that could be continued");
  while (!segments.empty() && !segments.back().from_input) segments.pop_back();
  const std::size_t begin = segments.empty() ? std::string::npos : segments.back().text.rfind(text);
  if (begin == std::string::npos)
    throw TemplateError("the prompt does not end with the text of the last message, so it cannot be continued");
  std::string& last = segments.back().text;
  std::size_t end = begin + text.size();
  const std::string_view space = std::string_view(content).substr(content.find_last_not_of(kWhiteSpace) + 1);
  for (std::size_t i = 0; i < space.size() && end < last.size() && last[end] == space[i]; ++i) ++end;
  last.resize(end);
}

std::vector<PromptSegment> segments_of(const Text& text) {
  std::vector<PromptSegment> segments;
  std::size_t at = 0;
  const auto add = [&](std::size_t end, bool from_input) {
    if (end > at) segments.push_back({text.bytes().substr(at, end - at), from_input});
    at = end;
  };
  for (const ByteRange& range : text.input()) {
    add(range.begin, false);
    add(range.end, true);
  }
  add(text.size(), false);
  return segments;
}

}  // namespace

std::string RenderedPrompt::text() const {
  std::string whole;
  for (const PromptSegment& each : segments) whole += each.text;
  return whole;
}

ChatTemplate::ChatTemplate(std::string name, std::string source, const Limits& limits,
                           std::unique_ptr<const ParsedTemplate> parsed)
    : name_(std::move(name)), source_(std::move(source)), limits_(limits), parsed_(std::move(parsed)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source, std::string name,
                                                                const Limits& limits) {
  try {
    auto parsed = std::make_unique<const ParsedTemplate>(parse_template(source, limits));
    return std::shared_ptr<const ChatTemplate>(
        new ChatTemplate(std::move(name), std::string(source), limits, std::move(parsed)));
  } catch (const TemplateError& error) {
    return error_of(ErrorCode::bad_model, name, error);
  }
}

Result<RenderedPrompt> ChatTemplate::render(const ChatInput& input, const std::atomic<bool>* interrupt) const {
  try {
    Interpreter interpreter(limits_, interrupt, input.now);
    Heap& heap = interpreter.heap();
    for (const auto& [variable, value] : input.variables) interpreter.set_variable(variable, heap.from_json(value));
    interpreter.set_variable("messages", messages_value(heap, input.messages));
    if (!std::holds_alternative<std::monostate>(input.tools.value))
      interpreter.set_variable("tools", heap.from_json(input.tools));
    interpreter.set_variable("add_generation_prompt", Value::boolean(input.add_generation_prompt));
    interpreter.set_variable("bos_token", heap.text(input.bos_token));
    interpreter.set_variable("eos_token", heap.text(input.eos_token));
    RenderedPrompt prompt{segments_of(interpreter.render(parsed_->body))};
    if (input.continue_final_message) end_with_last_message(prompt.segments, input.messages);
    return prompt;
  } catch (const TemplateError& error) {
    return error_of(ErrorCode::invalid_argument, name_, error);
  }
}

bool ChatTemplate::mentions(std::string_view variable) const { return parsed_->names.contains(variable); }

}  // namespace troupe::engine::chat
