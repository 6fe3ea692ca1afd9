#include "engine/chat/values/to_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/utf8.h"
#include "engine/chat/values/limits.h"
#include "engine/chat/values/python_text.h"

namespace troupe::engine::chat {
namespace {

void append_utf16_escapes(std::string& out, char32_t c) {
  const auto number = static_cast<std::uint32_t>(c);
  if (number < 0x10000)
    out += fmt::format("\\u{:04x}", number);
  else
    out +=
        fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((number - 0x10000) >> 10), 0xDC00 + ((number - 0x10000) & 0x3FF));
}

// One character inside a JSON string.
std::string json_character(std::string_view character, bool ensure_ascii) {
  const char first = character[0];
  switch (first) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  const Utf8Char next = next_utf8(character);
  if (next.status != Utf8Status::valid) return std::string(kReplacementCharacter);
  std::string out;
  if (next.code_point < 0x20 || (ensure_ascii && next.code_point > 0x7F))
    append_utf16_escapes(out, next.code_point);
  else
    out = character;
  return out;
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Heap& heap) : style_(style), heap_(heap) {}

  void write(const Value& value) {
    heap_.step();
    heap_.check_room(out_.size());
    switch (value.kind()) {
      case Kind::none:
        out_.append("null", value.from_input());
        return;
      case Kind::boolean:
        out_.append(value.boolean() ? "true" : "false", value.from_input());
        return;
      case Kind::integer:
        out_.append(std::to_string(value.integer()), value.from_input());
        return;
      case Kind::real:
        out_.append(value.is_large() ? value.text().bytes() : number(value.real()), value.from_input());
        return;
      case Kind::text:
        write_text(value.text());
        return;
      case Kind::list:
        if (value.list().form > ListForm::tuple) break;
        write_list(value.list());
        return;
      case Kind::map:
        write_map(value.map());
        return;
      default:
        break;
    }
    throw TemplateError(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
  }
  Text take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return real_to_text(value);
  }

  void write_text(const Text& text) {
    const std::string_view bytes = text.bytes();
    heap_.touch(bytes.size());
    heap_.check_room(out_.size() + 6 * bytes.size());
    const bool has_input = text.has_input();
    out_.append("\"", has_input);
    std::size_t plain = 0;  // where the bytes that need no escape begin
    const auto offsets = character_offsets(bytes);
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const std::string_view character = bytes.substr(offsets[i], offsets[i + 1] - offsets[i]);
      const std::string escaped = json_character(character, style_.ensure_ascii);
      if (escaped == character) continue;
      out_.append(text, plain, offsets[i]);
      out_.append(escaped, text.origin(offsets[i]));
      plain = offsets[i + 1];
    }
    out_.append(text, plain, bytes.size());
    out_.append("\"", has_input);
  }

  void write_key(const Value& key) {
    if (key.is(Kind::text)) return write_text(key.text());
    if (!key.is(Kind::none) && !key.is_number())
      throw TemplateError(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    out_.append("\"", key.from_input());
    write(key);
    out_.append("\"", key.from_input());
  }

  void open(char bracket, bool from_input) {
    if (++depth_ > kMaxDepth)
      throw TemplateError(fmt::format("tojson: values are nested deeper than {} levels", kMaxDepth));
    out_.append(std::string_view(&bracket, 1), from_input);
  }
  void close(char bracket, bool is_empty, bool from_input) {
    --depth_;
    if (!is_empty) new_line(from_input);
    out_.append(std::string_view(&bracket, 1), from_input);
  }
  void new_line(bool from_input) {
    if (!style_.indent) return;
    heap_.touch(depth_ * style_.indent->size());
    heap_.check_room(out_.size() + depth_ * style_.indent->size());
    out_.append("\n", from_input);
    for (std::size_t i = 0; i < depth_; ++i) out_.append(*style_.indent, from_input);
  }

  void write_list(const List& list) {
    open('[', list.from_input);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator, list.from_input);
      new_line(list.from_input);
      write(list.items[i]);
    }
    close(']', list.items.empty(), list.from_input);
  }

  void write_map(const Map& map) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& each : map.items) items.push_back(&each);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return is_less(a->first, b->first, heap_); });
    open('{', map.from_input);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator, map.from_input);
      new_line(map.from_input);
      write_key(items[i]->first);
      out_.append(style_.key_separator, map.from_input);
      write(items[i]->second);
    }
    close('}', items.empty(), map.from_input);
  }

  static constexpr std::size_t kMaxDepth = 200;

  const JsonStyle& style_;
  Heap& heap_;
  Text out_;
  std::size_t depth_ = 0;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style, Heap& heap) {
  JsonWriter writer(style, heap);
  writer.write(value);
  return writer.take();
}

}  // namespace troupe::engine::chat
