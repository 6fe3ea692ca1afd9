// str(), repr(), truth and order of values.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "config/utf8.h"
#include "engine/chat/values/characters.h"
#include "engine/chat/values/python_text.h"
#include "engine/chat/values/value.h"

namespace troupe::engine::chat {
namespace {

constexpr int kMaxContainers = 200;  // inside one another, for functions that go through them

void check_depth(int depth) {
  if (depth > kMaxContainers)
    throw TemplateError(fmt::format("containers are nested deeper than {} levels", kMaxContainers));
}

void append_code_point_escape(std::string& out, char32_t c) {
  const auto number = static_cast<std::uint32_t>(c);
  if (c < 0x100)
    out += fmt::format("\\x{:02x}", number);
  else if (c < 0x10000)
    out += fmt::format("\\u{:04x}", number);
  else
    out += fmt::format("\\U{:08x}", number);
}

// What stands for a character in repr(); empty: the character itself.
std::string escape_for_repr(const Character& character, char quote) {
  const char32_t c = character.code_point;
  std::string out;
  if (c == '\\' || c == static_cast<unsigned char>(quote))
    out = {'\\', static_cast<char>(c)};
  else if (c == '\n')
    out = "\\n";
  else if (c == '\r')
    out = "\\r";
  else if (c == '\t')
    out = "\\t";
  else if (c < kWrongByte && !is_printable(c))
    append_code_point_escape(out, c);
  return out;
}

// repr() of a value, written behind a text.
class ReprWriter {
 public:
  ReprWriter(Heap& heap, Text& out) : meter_(heap.meter()), out_(out) {}

  void write(const Value& value) {
    check_depth(depth_);
    meter_.work();
    switch (value.kind()) {
      case Kind::undefined:
        return add("Undefined", false);
      case Kind::none:
        return add("None", value.from_input());
      case Kind::boolean:
        return add(value.boolean() ? "True" : "False", value.from_input());
      case Kind::integer:
        return add(std::to_string(value.integer()), value.from_input());
      case Kind::real:
        if (value.is_large()) return add(value.text().bytes(), value.from_input());
        return add(real_to_text(value.real()), value.from_input());
      case Kind::text:
        return write_text(value.text());
      case Kind::list:
        return write_list(value.list());
      case Kind::map:
        return write_map(value.map());
      case Kind::object:
        return add(object_text(value.object().type), false);
    }
  }

 private:
  static std::string_view object_text(ObjectType type);

  void add(std::string_view bytes, Origin origin) { out_.append(bytes, origin, meter_); }

  void write_text(const Text& text) {
    const std::string_view bytes = text.bytes();
    const bool has_single = find_bytes(bytes, "'", meter_) != std::string_view::npos;
    const char quote = has_single && find_bytes(bytes, "\"", meter_) == std::string_view::npos ? '"' : '\'';
    const bool is_all_input = text.has_input() && text.is_all_input(meter_);
    add(std::string_view(&quote, 1), is_all_input);
    append_escaped(out_, text, meter_, [&](const Character& each) { return escape_for_repr(each, quote); });
    add(std::string_view(&quote, 1), is_all_input);
  }

  void write_list(const List& list) {
    ++depth_;
    const bool is_tuple = list.form == ListForm::tuple;
    add(is_tuple ? "(" : "[", list.from_input);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(", ", list.from_input);
      write(list.items[i]);
    }
    if (is_tuple && list.items.size() == 1) add(",", list.from_input);
    add(is_tuple ? ")" : "]", list.from_input);
    --depth_;
  }

  void write_map(const Map& map) {
    ++depth_;
    add("{", map.from_input);
    bool is_first = true;
    for (const auto& [key, value] : map.items) {
      if (!is_first) add(", ", map.from_input);
      is_first = false;
      write(key);
      add(": ", map.from_input);
      write(value);
    }
    add("}", map.from_input);
    --depth_;
  }

  Meter& meter_;
  Text& out_;
  int depth_ = 0;
};

std::string_view ReprWriter::object_text(ObjectType type) {
  switch (type) {
    case ObjectType::name_space:
      return "<Namespace>";
    case ObjectType::loop:
      return "<LoopContext>";
    case ObjectType::macro:
      return "<Macro>";
    case ObjectType::function:
      return "<function>";
    case ObjectType::method:
      return "<built-in method>";
    case ObjectType::cycler:
      return "<Cycler>";
    case ObjectType::joiner:
      return "<Joiner>";
  }
  return "<object>";
}

bool lists_equal(const List& a, const List& b, Heap& heap, int depth);
bool maps_equal(const Map& a, const Map& b, Heap& heap, int depth);

bool equals_at(const Value& a, const Value& b, Heap& heap, int depth) {
  check_depth(depth);
  heap.step();
  if (a.is_large() && b.is_large()) return same_bytes(a.text().bytes(), b.text().bytes(), heap.meter());
  if (a.is_number() && b.is_number())
    return a.is_whole() && b.is_whole() ? a.integer() == b.integer() : a.as_real() == b.as_real();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      return same_bytes(a.text().bytes(), b.text().bytes(), heap.meter());
    case Kind::list:
      return lists_equal(a.list(), b.list(), heap, depth + 1);
    case Kind::map:
      return maps_equal(a.map(), b.map(), heap, depth + 1);
    default:
      return a.address() == b.address();
  }
}

bool lists_equal(const List& a, const List& b, Heap& heap, int depth) {
  if (&a == &b) return true;
  if (a.form != b.form || a.items.size() != b.items.size() || a.form == ListForm::generator) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!equals_at(a.items[i], b.items[i], heap, depth)) return false;
  return true;
}

bool maps_equal(const Map& a, const Map& b, Heap& heap, int depth) {
  if (&a == &b) return true;
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* const other = b.find(key, heap);
    if (other == nullptr || !equals_at(value, *other, heap, depth)) return false;
  }
  return true;
}

bool less_at(const Value& a, const Value& b, Heap& heap, std::string_view symbol, int depth) {
  check_depth(depth);
  heap.step();
  if (a.is_number() && b.is_number())
    return a.is_whole() && b.is_whole() ? a.integer() < b.integer() : a.as_real() < b.as_real();
  if (a.is(Kind::text) && b.is(Kind::text)) return comes_before(a.text().bytes(), b.text().bytes(), heap.meter());
  if (a.is(Kind::list) && b.is(Kind::list) && a.list().form == b.list().form && a.list().form <= ListForm::tuple) {
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i)
      if (!equals_at(left[i], right[i], heap, depth + 1)) return less_at(left[i], right[i], heap, symbol, depth + 1);
    return left.size() < right.size();
  }
  for (const Value* each : {&a, &b})
    if (each->is(Kind::undefined)) throw TemplateError(std::string(each->text().bytes()));
  throw TemplateError(
      fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol, type_name(a), type_name(b)));
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return value.is_large() ? "int" : "float";
    case Kind::text:
      return "str";
    case Kind::list:
      switch (value.list().form) {
        case ListForm::list:
          return "list";
        case ListForm::tuple:
          return "tuple";
        case ListForm::view:
          return "dict_items";
        case ListForm::generator:
          return "generator";
      }
      return "list";
    case Kind::map:
      return "dict";
    case Kind::object:
      break;
  }
  switch (value.object().type) {
    case ObjectType::name_space:
      return "Namespace";
    case ObjectType::loop:
      return "LoopContext";
    case ObjectType::macro:
      return "Macro";
    case ObjectType::function:
      return "function";
    case ObjectType::method:
      return "builtin_function_or_method";
    case ObjectType::cycler:
      return "Cycler";
    case ObjectType::joiner:
      return "Joiner";
  }
  return "object";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::text:
      return !value.text().empty();
    case Kind::list:
      return value.list().form == ListForm::generator || !value.list().items.empty();
    case Kind::map:
      return !value.map().items.empty();
    case Kind::object:
      return true;
  }
  return true;
}

bool equals(const Value& a, const Value& b, Heap& heap) { return equals_at(a, b, heap, 0); }

bool is_less(const Value& a, const Value& b, Heap& heap, std::string_view symbol) {
  return less_at(a, b, heap, symbol, 0);
}

std::string real_to_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view digits(buffer, static_cast<std::size_t>(shortest.ptr - buffer));
  const int exponent = std::stoi(std::string(digits.substr(digits.find('e') + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(digits);
  char plain[40];
  const auto end = std::to_chars(plain, plain + sizeof plain, value, std::chars_format::fixed);
  std::string text(plain, end.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_repr(const Value& value, Heap& heap, Text& out) { ReprWriter(heap, out).write(value); }

void append_text(const Value& value, Heap& heap, Text& out) {
  if (value.is(Kind::text)) return out.append(value.text(), heap.meter());
  if (!value.is(Kind::undefined)) append_repr(value, heap, out);
}

Text to_repr(const Value& value, Heap& heap) {
  Text out;
  append_repr(value, heap, out);
  return out;
}

Text to_text(const Value& value, Heap& heap) {
  Text out;
  append_text(value, heap, out);
  return out;
}

}  // namespace troupe::engine::chat
