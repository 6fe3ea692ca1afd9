// "%s" % x and "{}".format(x), as far as templates use them: others are refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/values/characters.h"
#include "engine/chat/values/python_text.h"

namespace troupe::engine::chat {
namespace {

constexpr int kMaxWidth = 1000;
constexpr int kMaxPrecision = 40;

// %[(name)][flags][width][.precision]conversion
struct Conversion {
  std::string_view name;
  bool has_name = false, is_left = false, is_zero = false, is_signed = false;
  int width = 0, precision = -1;
  char letter = '\0';
};

int read_digits(std::string_view& rest, int most, Meter& meter) {
  int value = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    meter.work();
    value = value * 10 + (rest[0] - '0');
    if (value > most) throw TemplateError(fmt::format("a width or precision of a format is above {}", most));
    rest.remove_prefix(1);
  }
  return value;
}

// `rest` follows the percent sign, and is what comes after the conversion then.
Conversion read_conversion(std::string_view& rest, Meter& meter) {
  Conversion read;
  if (!rest.empty() && rest[0] == '(') {
    const std::size_t end = find_bytes(rest, ")", meter);
    if (end == std::string_view::npos) throw TemplateError("incomplete format key");
    read.name = rest.substr(1, end - 1);
    read.has_name = true;
    rest.remove_prefix(end + 1);
  }
  for (; !rest.empty(); rest.remove_prefix(1)) {
    meter.work();
    if (rest[0] == '-')
      read.is_left = true;
    else if (rest[0] == '0')
      read.is_zero = true;
    else if (rest[0] == '+')
      read.is_signed = true;
    else
      break;
  }
  read.width = read_digits(rest, kMaxWidth, meter);
  if (!rest.empty() && rest[0] == '.') {
    rest.remove_prefix(1);
    read.precision = read_digits(rest, kMaxPrecision, meter);
  }
  if (rest.empty()) throw TemplateError("incomplete format");
  read.letter = rest[0];
  rest.remove_prefix(1);
  return read;
}

std::string number_text(const Conversion& conversion, const Value& value) {
  if (!value.is_number()) fail_type(fmt::format("%{} format: a real number is required", conversion.letter), value);
  std::string digits;
  if (conversion.letter == 'd' || conversion.letter == 'i' || conversion.letter == 'u') {
    if (!value.is_whole() && !(std::abs(value.real()) < 9e18)) throw TemplateError("cannot convert float to integer");
    digits = std::to_string(value.is_whole() ? value.integer() : static_cast<std::int64_t>(value.real()));
  } else if (conversion.letter == 'x' || conversion.letter == 'X') {
    if (!value.is_whole()) fail_type(fmt::format("%{} format: an integer is required", conversion.letter), value);
    digits = conversion.letter == 'x' ? fmt::format("{:x}", value.integer()) : fmt::format("{:X}", value.integer());
  } else {
    const int precision = conversion.precision < 0 ? 6 : conversion.precision;
    if (conversion.letter == 'f' || conversion.letter == 'F')
      digits = fmt::format("{:.{}f}", value.as_real(), precision);
    else if (conversion.letter == 'e')
      digits = fmt::format("{:.{}e}", value.as_real(), precision);
    else if (conversion.letter == 'g')
      digits = fmt::format("{:.{}g}", value.as_real(), precision);
    else
      throw TemplateError(fmt::format("the format '%{}' is not supported", conversion.letter));
  }
  return conversion.is_signed && digits[0] != '-' ? "+" + digits : digits;
}

void append_padded(Text& out, const Conversion& conversion, const Text& text, std::size_t size, Meter& meter) {
  // No more characters than the widest field count.
  const std::string_view counted = text.bytes().substr(0, std::min<std::size_t>(size, 4 * kMaxWidth));
  const auto length = static_cast<int>(std::min<std::size_t>(count_characters(counted, meter), kMaxWidth));
  const auto missing = static_cast<std::size_t>(std::max(0, conversion.width - length));
  const bool is_number = conversion.letter != 's' && conversion.letter != 'r';
  if (conversion.is_left) {
    out.append(text, 0, size, meter);
    out.append(std::string(missing, ' '), kFromTemplate, meter);
  } else if (conversion.is_zero && is_number) {
    const std::size_t sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+') ? 1 : 0;
    out.append(text, 0, sign, meter);
    out.append(std::string(missing, '0'), kFromTemplate, meter);
    out.append(text, sign, size, meter);
  } else {
    out.append(std::string(missing, ' '), kFromTemplate, meter);
    out.append(text, 0, size, meter);
  }
}

void append_converted(Text& out, Heap& heap, const Conversion& conversion, const Value& value) {
  Meter& meter = heap.meter();
  if (conversion.letter != 's' && conversion.letter != 'r') {
    meter.work(16);  // a number may have 300 digits
    const Text digits(number_text(conversion, value), value.from_input());
    return append_padded(out, conversion, digits, digits.size(), meter);
  }
  const bool is_written = conversion.letter == 's' && value.is(Kind::text);
  const Text made = is_written ? Text() : conversion.letter == 's' ? to_text(value, heap) : to_repr(value, heap);
  const Text& text = is_written ? value.text() : made;
  const std::size_t size = conversion.precision < 0
                               ? text.size()
                               : character_place(text.bytes(), static_cast<std::size_t>(conversion.precision), meter);
  append_padded(out, conversion, text, size, meter);
}

// What a field of braces names: a number, a name or, without either, the next argument.
const Value& field_value(std::string_view field, std::size_t& next, const CallArguments& arguments) {
  std::size_t index = 0;
  if (field.empty())
    index = next++;
  else if (std::from_chars(field.data(), field.data() + field.size(), index).ptr != field.data() + field.size()) {
    for (const auto& [name, value] : arguments.named)
      if (name == field) return value;
    if (field.find_first_of(".[!:") != std::string_view::npos)
      throw TemplateError(
          fmt::format("the format field '{{{}}}' is not supported: only names and numbers are", shown(field)));
    throw TemplateError(fmt::format("format(): there is no argument '{}'", shown(field)));
  }
  if (index >= arguments.positional.size())
    throw TemplateError("Replacement index out of range for positional args tuple");
  return arguments.positional[index];
}

}  // namespace

Text format_percent(Runtime& runtime, const Text& format, const Value& arguments) {
  const bool is_tuple = arguments.is(Kind::list) && arguments.list().form == ListForm::tuple;
  const std::span<const Value> values =
      is_tuple ? std::span<const Value>(arguments.list().items) : std::span<const Value>(&arguments, 1);
  std::size_t next = 0;
  Text out;
  Meter& meter = runtime.meter();
  for (std::size_t at = 0; at < format.size();) {
    meter.work();
    const std::size_t percent = std::min(find_bytes(format.bytes(), "%", meter, at), format.size());
    out.append(format, at, percent, meter);
    if (percent == format.size()) break;
    std::string_view rest = format.bytes().substr(percent + 1);
    const Conversion conversion = read_conversion(rest, meter);
    at = format.size() - rest.size();
    if (conversion.letter == '%') {
      out.append("%", format.origin(percent), meter);
      continue;
    }
    Value value;
    if (conversion.has_name) {
      if (!arguments.is(Kind::map)) throw TemplateError("format requires a mapping");
      value = runtime.item(arguments, runtime.text(conversion.name));
      require_defined(value);
    } else {
      if (next == values.size()) throw TemplateError("not enough arguments for format string");
      value = values[next++];
    }
    append_converted(out, runtime.heap(), conversion, value);
  }
  if (next < values.size() && !arguments.is(Kind::map))
    throw TemplateError("not all arguments converted during string formatting");
  return out;
}

Text format_braces(Runtime& runtime, const Text& format, const CallArguments& arguments) {
  Text out;
  std::size_t next = 0;
  Meter& meter = runtime.meter();
  const std::string_view bytes = format.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    meter.work();
    const std::size_t brace = visit_characters(bytes, meter, at, [](const Character& each, std::size_t) {
      return each.code_point != '{' && each.code_point != '}';
    });
    out.append(format, at, brace, meter);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.append(format, brace, brace + 1, meter);
      at = brace + 2;
      continue;
    }
    const std::size_t end = find_bytes(bytes, "}", meter, brace);
    if (bytes[brace] == '}' || end == std::string::npos)
      throw TemplateError(fmt::format("Single '{}' encountered in format string", bytes[brace]));
    meter.work(arguments.named.size() / 8);
    append_text(field_value(bytes.substr(brace + 1, end - brace - 1), next, arguments), runtime.heap(), out);
    at = end + 1;
  }
  return out;
}

}  // namespace troupe::engine::chat
