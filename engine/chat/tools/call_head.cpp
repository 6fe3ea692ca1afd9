#include "engine/chat/tools/call_head.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/chat/tools/json_text.h"
#include "engine/tokenizers/marker_search.h"

namespace troupe::engine::chat {
namespace {

using Found = JsonCursor::Found;
using HeadKind = CallHead::Kind;

// Between the marks around a name: an id of the call, for example.
constexpr std::size_t kMaxBetween = 128;
constexpr std::size_t kMaxHeader = 512;  // of a message of harmony

HeadKind kind_of(Found found) { return found == Found::cut ? HeadKind::open : HeadKind::none; }
CallHead head_of(HeadKind kind) { return {.kind = kind}; }

// At most kMaxBetween bytes, then the mark.
Found find_mark(JsonCursor& cursor, std::string_view mark) {
  const std::string_view rest = cursor.text.substr(cursor.at);
  const std::size_t place = rest.find(mark);
  if (place > kMaxBetween) return rest.size() > kMaxBetween + mark.size() ? Found::no : Found::cut;
  cursor.at += place + mark.size();
  return Found::yes;
}

// The name without what the format has around it: "functions.get_time:0" is get_time.
std::string_view bare_name(std::string_view name, const ToolFormat& format) {
  if (format.name_prefix.empty()) return name;
  if (name.starts_with(format.name_prefix)) name.remove_prefix(format.name_prefix.size());
  const std::size_t colon = name.rfind(':');
  const bool has_index = colon != std::string_view::npos && colon + 1 < name.size() &&
                         std::ranges::all_of(name.substr(colon + 1), [](char c) { return c >= '0' && c <= '9'; });
  return has_index ? name.substr(0, colon) : name;
}

CallHead call_of(std::string name, std::size_t length, std::unique_ptr<ArgumentsReader> arguments) {
  return {.kind = HeadKind::call, .length = length, .name = std::move(name), .arguments = std::move(arguments)};
}

// {"name": NAME ...}, {"function": {"name": NAME ...}}, {"arguments": {...}, "name": NAME}
CallHead read_object_head(JsonCursor cursor) {
  std::size_t depth = 1;
  std::string arguments;
  if (const Found open = cursor.mark("{"); open != Found::yes) return head_of(kind_of(open));
  while (true) {
    std::string key;
    if (const Found found = cursor.quoted(key); found != Found::yes) return head_of(kind_of(found));
    if (const Found found = cursor.mark(":"); found != Found::yes) return head_of(kind_of(found));
    cursor.skip_space();
    if (cursor.is_cut()) return head_of(HeadKind::open);
    const char first = cursor.text[cursor.at];
    const bool is_name = key == "name" || key == "tool_name" || key == "function";
    if (is_name && first == '"') {
      std::string name;
      if (const Found found = cursor.quoted(name); found != Found::yes) return head_of(kind_of(found));
      if (!is_tool_name(name)) return {};
      const bool is_behind_arguments = !arguments.empty();
      CallHead head = call_of(std::move(name), cursor.at, read_object(depth, false, std::move(arguments)));
      head.is_nested = depth > 1;
      head.is_behind_arguments = is_behind_arguments;
      return head;
    }
    if (key == "function" && first == '{' && depth == 1) {
      ++cursor.at;
      ++depth;
      continue;
    }
    std::string_view value;
    if (const Found found = cursor.value(value); found != Found::yes) return head_of(kind_of(found));
    if (key == "arguments" || key == "parameters") arguments = value;
    if (const Found comma = cursor.mark(","); comma != Found::yes) return head_of(kind_of(comma));
  }
}

// {NAME: {...}}
CallHead read_keyed_head(JsonCursor cursor) {
  std::string name;
  if (const Found open = cursor.mark("{"); open != Found::yes) return head_of(kind_of(open));
  if (const Found found = cursor.quoted(name); found != Found::yes) return head_of(kind_of(found));
  if (const Found found = cursor.mark(":"); found != Found::yes) return head_of(kind_of(found));
  if (!is_tool_name(name)) return {};
  return call_of(std::move(name), cursor.at, read_object(1, true, {}));
}

std::unique_ptr<ArgumentsReader> reader_of(const ToolFormat& format, const ToolSet& tools, const std::string& name) {
  if (format.syntax == CallSyntax::tagged) return read_tagged(format, tools, name);
  if (format.syntax == CallSyntax::literals) return read_literals();
  std::vector<std::string_view> ends;
  for (const std::string_view mark : {format.call_close, format.section_close, format.call_open})
    if (!mark.empty()) ends.push_back(mark);
  return read_named(std::move(ends));
}

// The mark before or behind a name; named: also behind an id of the call.
Found read_name_mark(const ToolFormat& format, std::string_view mark, JsonCursor& cursor) {
  if (mark.empty()) return Found::yes;
  if (without_trailing_space(mark) != 0)
    return format.syntax == CallSyntax::named ? find_mark(cursor, mark) : cursor.mark(mark);
  const std::string_view rest = cursor.text.substr(cursor.at);
  if (!rest.starts_with(mark)) return may_become(rest, mark) ? Found::cut : Found::no;
  cursor.at += mark.size();
  return Found::yes;
}

// before_name NAME after_name
CallHead read_named_head(const ToolFormat& format, const ToolSet& tools, JsonCursor cursor) {
  if (const Found found = read_name_mark(format, format.before_name, cursor); found != Found::yes)
    return head_of(kind_of(found));
  cursor.skip_space();
  const std::string_view rest = cursor.text.substr(cursor.at);
  std::size_t length = 0;
  while (length < rest.size() && length <= kMaxToolNameBytes + format.name_prefix.size() &&
         is_tool_name(rest.substr(length, 1)))
    ++length;
  if (length == 0 && !rest.empty()) return {};
  if (length == rest.size()) return head_of(HeadKind::open);
  const std::string_view name = bare_name(rest.substr(0, length), format);
  if (!is_tool_name(name)) return {};
  cursor.at += length;
  if (const Found found = read_name_mark(format, format.after_name, cursor); found != Found::yes)
    return head_of(kind_of(found));
  if (!format.user_name.empty() && name == format.user_name) return {.kind = HeadKind::skip, .length = cursor.at};
  return call_of(std::string(name), cursor.at, reader_of(format, tools, std::string(name)));
}

// A header and <|message|>; " to=functions.NAME" makes a call of it. A message to what is no tool (python) is a text.
CallHead read_message_head(const ToolFormat& format, const ToolSet& tools, std::string_view text) {
  constexpr std::string_view kMessage = "<|message|>", kRecipient = "to=";
  for (const std::string_view end : {"<|end|>", "<|return|>", "<|call|>"})
    if (text.starts_with(end)) return {.kind = HeadKind::skip, .length = end.size()};
  const std::size_t header_end = text.find(kMessage);
  if (header_end > kMaxHeader)
    return head_of(text.size() > kMaxHeader + kMessage.size() ? HeadKind::none : HeadKind::open);
  const std::size_t length = header_end + kMessage.size();
  const std::string_view header = text.substr(0, header_end);
  const std::size_t to = header.find(kRecipient);
  if (to == std::string_view::npos) return {.kind = HeadKind::skip, .length = length};
  std::string_view name = header.substr(to + kRecipient.size());
  name = bare_name(name.substr(0, name.find_first_of(" <")), format);
  const bool is_tool = tools.empty() ? is_tool_name(name) && name != "user" && name != "assistant" : tools.has(name);
  if (!is_tool) return {.kind = HeadKind::skip, .length = length};
  return call_of(std::string(name), length, read_named({"<|call|>", "<|end|>", "<|return|>", "<|start|>"}));
}

// The texts before a call itself; false: `head` is the result.
bool read_openings(const ToolFormat& format, CallPlace place, JsonCursor& cursor, CallHead& head) {
  const auto take = [&](std::string_view mark, bool may_be_missing) {
    if (mark.empty()) return true;
    const Found found = cursor.mark(mark);
    if (found == Found::yes) return true;
    head = head_of(kind_of(found));
    return found == Found::no && may_be_missing;
  };
  // Some models leave out the marks before <function=NAME>.
  const bool has_own_mark = format.syntax == CallSyntax::tagged && !format.before_name.empty();
  const bool may_be_missing = place == CallPlace::bare || has_own_mark;
  if (place != CallPlace::in_section) {
    if (!take(format.section_open, may_be_missing)) return false;
    // Some models write no list for one call.
    const bool is_single = format.syntax == CallSyntax::object && !opens_with_word(format);
    if (format.is_list && !take("[", is_single)) return false;
  }
  return take(format.call_open, may_be_missing);
}

}  // namespace

CallHead read_head(const ToolFormat& format, const ToolSet& tools, CallPlace place, std::string_view text) {
  CallHead head;
  if (format.syntax == CallSyntax::recipients) {
    head = read_message_head(format, tools, text);
  } else {
    JsonCursor cursor{text};
    if (!read_openings(format, place, cursor, head)) return head;
    if (format.syntax == CallSyntax::object)
      head = read_object_head(cursor);
    else if (format.syntax == CallSyntax::keyed)
      head = read_keyed_head(cursor);
    else
      head = read_named_head(format, tools, cursor);
  }
  // Without a mark the name has to be one of a tool, and to come first, so that its arguments are known for some.
  const bool has_mark = place != CallPlace::bare || format.syntax == CallSyntax::recipients;
  if (head.kind == HeadKind::call && !has_mark &&
      (head.is_behind_arguments || (!tools.empty() && !tools.has(head.name))))
    return {};
  if (head.kind == HeadKind::open && text.size() > kMaxHeldCallBytes) return {};
  return head;
}

}  // namespace troupe::engine::chat
