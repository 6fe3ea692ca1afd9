#include "engine/chat/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/printable.h"
#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/syntax/parser.h"
#include "engine/chat/values/python_text.h"

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

// What the conversation's texts are known by in what is rendered.
constexpr Origin kPartNames = kFromInput + 1;     // the names and the type of a part's members
constexpr Origin kFirstContent = kFromInput + 2;  // the first text; each further one has the next number

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
}

// The messages as a template sees them. Every text of a content has an origin of its own.
class Messages {
 public:
  Messages(Heap& heap, const Json& messages) : heap_(heap), value_(heap.from_json(messages)) {
    if (!value_.is(Kind::list)) throw TemplateError("'messages' must be a list");
    const Value role = heap.text("role"), content = heap.text("content");
    for (std::size_t i = 0; i < value_.list().items.size(); ++i) {
      const Value& message = value_.list().items[i];
      if (!message.is(Kind::map)) throw TemplateError("each of 'messages' must be an object");
      const Value* const given = message.map().find("role", heap);
      if (given != nullptr && given->is(Kind::text) && is_known_role(given->text().bytes()))
        heap.set(message.map(), role, heap.text(given->text().bytes()));
      if (const Value* const said = message.map().find("content", heap))
        heap.set(message.map(), content, numbered_content(*said, i));
    }
  }

  const Value& value() const { return value_; }

  // O(ranges of the prompt + texts).
  void find_left_out(const Text& prompt, RenderedPrompt& out) const {
    std::vector<bool> written(messages_of_.size(), false);
    for (const ByteRange& range : prompt.input()) {
      if (range.origin >= kFirstContent) written[range.origin - kFirstContent] = true;
      if (range.origin == kPartNames) out.writes_whole_parts = true;
    }
    for (std::size_t i = 0; i < written.size(); ++i)
      if (!written[i] && (out.left_out.empty() || out.left_out.back() != messages_of_[i]))
        out.left_out.push_back(messages_of_[i]);
  }

 private:
  Value numbered(std::string_view text, std::size_t message) {
    if (trimmed(text).empty()) return heap_.text(text, kFromInput);
    messages_of_.push_back(message);
    return heap_.text(text, kFirstContent + static_cast<Origin>(messages_of_.size() - 1));
  }

  Value numbered_part(const Value& part, std::size_t message) {
    if (!part.is(Kind::map)) return part;
    const Value made = heap_.map();
    for (const auto& [name, value] : part.map().items) {
      const std::string_view key = name.text().bytes();
      const bool is_text = key == "text" && value.is(Kind::text), is_type = key == "type" && value.is(Kind::text);
      heap_.set(made.map(), heap_.text(key, kPartNames),
                is_text   ? numbered(value.text().bytes(), message)
                : is_type ? heap_.text(value.text().bytes(), kPartNames)
                          : value);
    }
    made.map().from_input = true;
    return made;
  }

  Value numbered_content(const Value& content, std::size_t message) {
    if (content.is(Kind::text)) return numbered(content.text().bytes(), message);
    if (!content.is(Kind::list)) return content;
    Values parts;
    for (const Value& each : content.list().items) parts.push_back(numbered_part(each, message));
    const Value made = heap_.list(std::move(parts));
    made.list().from_input = true;
    return made;
  }

  Heap& heap_;
  Value value_;
  std::vector<std::size_t> messages_of_;  // of each numbered text, its message
};

// The text of a content, of a list of parts that of the last one that has any.
std::string last_text(const Json& content) {
  if (content.text() != nullptr) return *content.text();
  if (content.list() == nullptr) return {};
  for (auto part = content.list()->rbegin(); part != content.list()->rend(); ++part)
    if (const Json* const text = part->find("text"); text && text->text() && !trimmed(*text->text()).empty())
      return *text->text();
  return {};
}

// Drops what follows the text of the last message. Templates may have trimmed it: white space behind it is kept as far
// as the prompt has it. Looks at the last input of the prompt alone, as an earlier message may have the same text.
void end_with_last_message(std::vector<PromptSegment>& segments, const Json& messages, Meter& meter) {
  const auto& list = std::get<Json::List>(messages.value);
  const Json* const member = list.empty() ? nullptr : list.back().find("content");
  const std::string content = member != nullptr ? last_text(*member) : "";
  const std::string_view text = trimmed(content);
  if (text.empty()) throw TemplateError("the last message has no text that could be continued");
  while (!segments.empty() && !segments.back().from_input) segments.pop_back();
  const std::size_t begin = segments.empty() ? std::string::npos : find_last_bytes(segments.back().text, text, meter);
  if (begin == std::string::npos)
    throw TemplateError("the prompt does not end with the text of the last message, so it cannot be continued");
  std::string& last = segments.back().text;
  std::size_t end = begin + text.size();
  const std::string_view space = std::string_view(content).substr(content.find_last_not_of(kWhiteSpace) + 1);
  for (std::size_t i = 0; i < space.size() && end < last.size() && last[end] == space[i]; ++i) ++end;
  last.resize(end);
}

// They are a part of the rendering's memory, too: a template can make a segment of every byte.
std::vector<PromptSegment> segments_of(const Text& text, Meter& meter) {
  std::vector<PromptSegment> segments;
  const std::size_t most = 2 * text.input().size() + 1;
  MemoryAccount::current()->take(text.size() + most * sizeof(PromptSegment));
  segments.reserve(most);
  std::size_t at = 0;
  const auto add = [&](std::size_t end, bool from_input) {
    if (end == at) return;
    const bool goes_on = !segments.empty() && segments.back().from_input == from_input;
    if (goes_on)
      segments.back().text.append(text.bytes(), at, end - at);
    else
      segments.push_back({std::string(text.bytes().substr(at, end - at)), from_input});
    at = end;
  };
  for (const ByteRange& range : text.input()) {
    meter.touch(range.end - at);
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
    : name_(std::move(name)),
      source_(std::move(source)),
      limits_(limits),
      knows_developer_(source_.find("developer") != std::string::npos),
      parsed_(std::move(parsed)) {}
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

Result<RenderedPrompt> ChatTemplate::render(const ChatInput& input, const std::atomic<bool>* interrupt,
                                            TimeBudget* time) const {
  TimeBudget own(limits_.max_time);
  try {
    Interpreter interpreter(limits_, time != nullptr ? time : &own, interrupt, input.now);
    Heap& heap = interpreter.heap();
    for (const auto& [variable, value] : input.variables) interpreter.set_variable(variable, heap.from_json(value));
    const Messages messages(heap, input.messages);
    interpreter.set_variable("messages", messages.value());
    if (!std::holds_alternative<std::monostate>(input.tools.value))
      interpreter.set_variable("tools", heap.from_json(input.tools));
    interpreter.set_variable("add_generation_prompt", Value::boolean(input.add_generation_prompt));
    interpreter.set_variable("bos_token", heap.text(input.bos_token));
    interpreter.set_variable("eos_token", heap.text(input.eos_token));
    const Text rendered = interpreter.render(parsed_->body);
    RenderedPrompt prompt{.segments = segments_of(rendered, heap.meter())};
    messages.find_left_out(rendered, prompt);
    if (input.continue_final_message) end_with_last_message(prompt.segments, input.messages, heap.meter());
    return prompt;
  } catch (const TemplateError& error) {
    return error_of(ErrorCode::invalid_argument, name_, error);
  }
}

Status ChatTemplate::try_out(TimeBudget& time, const std::atomic<bool>* interrupt) const {
  std::call_once(form_once_, [&] { form_ = find_message_form(*this, time, interrupt); });
  if (!time.was_used_up()) return Ok{};
  return Error{ErrorCode::bad_model,
               fmt::format("chat template '{}': its trial, which renders short conversations, takes longer than {} ms",
                           name_, time.bound().count())};
}

const MessageForm& ChatTemplate::form() const {
  TimeBudget time = trial_time();
  std::call_once(form_once_, [&] { form_ = find_message_form(*this, time, nullptr); });
  return form_;
}

TimeBudget trial_time() { return TimeBudget(kMaxTrialTime, kMaxTrialWork); }

bool ChatTemplate::mentions(std::string_view variable) const { return parsed_->names.contains(variable); }

}  // namespace troupe::engine::chat
