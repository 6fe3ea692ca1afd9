#include "engine/chat/values/to_json.h"

#include <fmt/format.h>

#include <cmath>

#include "config/utf8.h"
#include "engine/chat/values/characters.h"
#include "engine/chat/values/python_text.h"
#include "engine/chat/values/sorting.h"

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

// What stands for a character inside a JSON string; empty: the character itself.
std::string json_escape(const Character& character, bool ensure_ascii) {
  switch (character.code_point) {
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
  if (character.code_point >= kWrongByte) return std::string(kReplacementCharacter);
  std::string out;
  if (character.code_point < 0x20 || (ensure_ascii && character.code_point > 0x7F))
    append_utf16_escapes(out, character.code_point);
  return out;
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Heap& heap) : style_(style), heap_(heap), meter_(heap.meter()) {}

  void write(const Value& value) {
    meter_.work();
    switch (value.kind()) {
      case Kind::none:
        return add("null", value.from_input());
      case Kind::boolean:
        return add(value.boolean() ? "true" : "false", value.from_input());
      case Kind::integer:
        return add(std::to_string(value.integer()), value.from_input());
      case Kind::real:
        if (value.is_large()) return add(value.text().bytes(), value.from_input());
        return add(number(value.real()), value.from_input());
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

  void add(std::string_view bytes, Origin origin) { out_.append(bytes, origin, meter_); }

  void write_text(const Text& text) {
    const bool has_input = text.has_input();
    add("\"", has_input);
    append_escaped(out_, text, meter_, [&](const Character& each) { return json_escape(each, style_.ensure_ascii); });
    add("\"", has_input);
  }

  void write_key(const Value& key) {
    if (key.is(Kind::text)) return write_text(key.text());
    if (!key.is(Kind::none) && !key.is_number())
      throw TemplateError(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    add("\"", key.from_input());
    write(key);
    add("\"", key.from_input());
  }

  void open(char bracket, bool from_input) {
    if (++depth_ > kMaxDepth)
      throw TemplateError(fmt::format("tojson: values are nested deeper than {} levels", kMaxDepth));
    add(std::string_view(&bracket, 1), from_input);
  }
  void close(char bracket, bool is_empty, bool from_input) {
    --depth_;
    if (!is_empty) new_line(from_input);
    add(std::string_view(&bracket, 1), from_input);
  }
  void new_line(bool from_input) {
    if (!style_.indent) return;
    add("\n", from_input);
    for (std::size_t i = 0; i < depth_; ++i) add(*style_.indent, from_input);
  }

  void write_list(const List& list) {
    open('[', list.from_input);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(style_.item_separator, list.from_input);
      new_line(list.from_input);
      write(list.items[i]);
    }
    close(']', list.items.empty(), list.from_input);
  }

  void write_map(const Map& map) {
    ChargedVector<const std::pair<Value, Value>*> items;
    for (const auto& each : map.items) {
      meter_.work();
      items.push_back(&each);
    }
    if (style_.sort_keys)
      sort_stably(items, [&](const auto* a, const auto* b) { return is_less(a->first, b->first, heap_); });
    open('{', map.from_input);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(style_.item_separator, map.from_input);
      new_line(map.from_input);
      write_key(items[i]->first);
      add(style_.key_separator, map.from_input);
      write(items[i]->second);
    }
    close('}', items.empty(), map.from_input);
  }

  static constexpr std::size_t kMaxDepth = 200;

  const JsonStyle& style_;
  Heap& heap_;
  Meter& meter_;
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
