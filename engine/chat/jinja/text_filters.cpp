// Filters of texts and of single values.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/values/characters.h"
#include "engine/chat/values/python_text.h"
#include "engine/chat/values/to_json.h"

namespace troupe::engine::chat {
namespace {

// A filter of a text that a method of it has: the input becomes text first.
template <Function (*find)(std::string_view), const char* name>
Value as_method(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  return find(name)(runtime, runtime.as_text(input), arguments);
}
constexpr char kStrip[] = "strip", kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize",
               kCenter[] = "center";

Value string_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("string", arguments, {});
  return runtime.as_text(input);
}

// Nothing is escaped unless asked for: the output is no HTML.
Value safe_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  return string_filter(runtime, input, arguments);
}

Value title_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("title", arguments, {});
  return runtime.text(title_words(runtime.as_text(input).text(), runtime.meter()));
}

Value replace_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"});
  CallArguments texts;
  texts.positional = {runtime.as_text(bound.required(0)), runtime.as_text(bound.required(1)),
                      Value::integer(bound.integer(2, -1))};
  return find_text_method("replace")(runtime, runtime.as_text(input), texts);
}

Value format_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const Value format = runtime.as_text(input);
  if (arguments.named.empty())
    return runtime.text(
        format_percent(runtime, format.text(), runtime.heap().list(arguments.positional, ListForm::tuple)));
  if (!arguments.positional.empty())
    throw TemplateError("can't handle positional and keyword arguments at the same time");
  const Value map = runtime.heap().map();
  for (const auto& [name, value] : arguments.named) runtime.heap().set(map.map(), runtime.text(name), value);
  return runtime.text(format_percent(runtime, format.text(), map));
}

Value escape_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("escape", arguments, {});
  const Value value = runtime.as_text(input);
  const Text& text = value.text();
  Text out;
  std::size_t plain = 0;  // where the bytes that need no escape begin
  visit_characters(text.bytes(), runtime.meter(), 0, [&](const Character& each, std::size_t at) {
    const char32_t c = each.code_point;
    const std::string_view name = c == '&'    ? "&amp;"
                                  : c == '<'  ? "&lt;"
                                  : c == '>'  ? "&gt;"
                                  : c == '\'' ? "&#39;"
                                  : c == '"'  ? "&#34;"
                                              : "";
    if (name.empty()) return true;
    out.append(text, plain, at, runtime.meter());
    out.append(name, text.origin(at), runtime.meter());
    plain = at + each.length;
    return true;
  });
  out.append(text, plain, text.size(), runtime.meter());
  return runtime.text(std::move(out));
}

Value indent_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("indent", arguments, {"width", "first", "blank"});
  const Value value = runtime.as_text(input);
  const Text& text = value.text();
  const Value indention =
      bound[0] != nullptr && bound[0]->is(Kind::text)
          ? *bound[0]
          : runtime.arithmetic(Operator::multiply, runtime.text(" "), Value::integer(bound.integer(0, 4)));
  Spans lines = split_lines(text.bytes(), false, runtime.meter());
  // Jinja puts a newline behind the text first, so that an empty last line counts.
  const char32_t last = text.empty() ? U'\n' : character_before(text.bytes(), text.size()).code_point;
  const bool ends_line = last != U'\r' && is_line_end(last);
  if (ends_line) lines.push_back({text.size(), text.size()});
  Text out;
  if (bound.boolean(1, false)) out.append(indention.text(), runtime.meter());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto [begin, end] = lines[i];
    if (i > 0) out.append("\n", kFromTemplate, runtime.meter());
    if (i > 0 && (bound.boolean(2, false) || begin < end)) out.append(indention.text(), runtime.meter());
    out.append(text, begin, end, runtime.meter());
  }
  return runtime.text(std::move(out));
}

Value truncate_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Value value = runtime.as_text(input);
  const std::int64_t length = bound.integer(0, 255), leeway = bound.integer(3, 5);
  const Value end = bound[2] != nullptr ? runtime.as_text(*bound[2]) : runtime.text("...");
  const std::int64_t end_length = runtime.length(end);
  if (length < end_length) throw TemplateError(fmt::format("expected length >= {}, got {}", end_length, length));
  if (leeway < 0) throw TemplateError(fmt::format("expected leeway >= 0, got {}", leeway));
  if (runtime.length(value) - leeway <= length) return value;
  const std::string_view bytes = value.text().bytes();
  std::size_t size = character_place(bytes, static_cast<std::size_t>(length - end_length), runtime.meter());
  if (!bound.boolean(1, false)) size = std::min(size, find_last_bytes(bytes.substr(0, size), " ", runtime.meter()));
  Text out = value.text().part(0, size, runtime.meter());
  out.append(end.text(), runtime.meter());
  return runtime.text(std::move(out));
}

Value wordcount_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("wordcount", arguments, {});
  return Value::integer(static_cast<std::int64_t>(count_words(runtime.as_text(input).text().bytes(), runtime.meter())));
}

// The digits of a number, without what Python allows around and between them; empty if they are too many.
std::string digits_of(const Text& text, Meter& meter) {
  const auto [begin, end] = strip(text.bytes(), Side::both, meter);
  if (end - begin > kMaxNumberDigits) return {};
  std::string digits(text.bytes().substr(begin, end - begin));
  std::erase(digits, '_');
  if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
  return digits;
}

std::optional<double> real_of_text(const Text& text, Meter& meter) {
  const std::string digits = digits_of(text, meter);
  double value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ptr != digits.data() + digits.size() || digits.empty() || end.ec == std::errc::invalid_argument)
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> integer_of_text(const Text& text, int base, Meter& meter) {
  std::string digits = digits_of(text, meter);
  const std::size_t sign = !digits.empty() && digits[0] == '-' ? 1 : 0;
  if (base == 16 && (digits.compare(sign, 2, "0x") == 0 || digits.compare(sign, 2, "0X") == 0)) digits.erase(sign, 2);
  std::int64_t value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Value int_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("int", arguments, {"default", "base"});
  require_defined(input);
  const Value fallback = bound[0] != nullptr ? *bound[0] : Value::integer(0);
  const std::int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) throw TemplateError("int(): base must be between 2 and 36");
  if (input.is_whole()) return Value::integer(input.integer()).marked(input.from_input());
  if (input.is_large()) return input;
  std::optional<double> real;
  if (input.is(Kind::text)) {
    if (const auto whole = integer_of_text(input.text(), static_cast<int>(base), runtime.meter()))
      return Value::integer(*whole).marked(input.text().has_input());
    real = real_of_text(input.text(), runtime.meter());
  } else if (input.is(Kind::real)) {
    real = input.real();
  }
  if (!real || !(std::abs(*real) < 9.2e18)) return fallback;
  return Value::integer(static_cast<std::int64_t>(*real))
      .marked(input.from_input() || (input.is(Kind::text) && input.text().has_input()));
}

Value float_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("float", arguments, {"default"});
  require_defined(input);
  if (input.is_number()) return Value::real(input.as_real()).marked(input.from_input());
  if (input.is(Kind::text)) {
    if (const auto real = real_of_text(input.text(), runtime.meter()))
      return Value::real(*real).marked(input.text().has_input());
  }
  return bound[0] != nullptr ? *bound[0] : Value::real(0);
}

Value abs_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("abs", arguments, {});
  if (!input.is_number()) fail_type("bad operand type for abs(): a number is needed", input);
  if (input.is(Kind::real)) return Value::real(std::abs(input.real()));
  return input.integer() < 0 ? runtime.negate(input) : Value::integer(input.integer());
}

Value round_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("round", arguments, {"precision", "method"});
  if (!input.is_number()) fail_type("round() needs a number", input);
  const std::int64_t precision = bound.integer(0, 0);
  const std::string_view method = bound.optional_text(1) != nullptr ? bound.text(1).bytes() : "common";
  if (precision < -30 || precision > 30) throw TemplateError("round(): precision must be from -30 to 30");
  if (method == "common") {
    if (input.is_whole() && precision >= 0) return Value::integer(input.integer());
    if (precision >= 0 && std::isfinite(input.real())) {
      runtime.heap().step(16);  // a number may have 300 digits
      // Correctly rounded from the exact value, half to even, as Python does.
      const std::string digits = fmt::format("{:.{}f}", input.real(), precision);
      double rounded = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
      return Value::real(rounded);
    }
  } else if (method != "ceil" && method != "floor") {
    throw TemplateError("method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = input.as_real() * scale;
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  const double value = rounded / scale;
  return method == "common" && input.is_whole() ? Value::integer(static_cast<std::int64_t>(value)) : Value::real(value);
}

Value default_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("default", arguments, {"default_value", "boolean"});
  const bool is_replaced = input.is(Kind::undefined) || (bound.boolean(1, false) && !is_true(input));
  if (!is_replaced) return input;
  return bound[0] != nullptr ? *bound[0] : runtime.text("");
}

std::optional<std::string_view> indent_of(const Value* value) {
  static constexpr std::string_view kSpaces = "                                                                ";
  if (value == nullptr) return std::nullopt;
  if (value->is(Kind::text)) return value->text().bytes();
  if (!value->is_whole() || value->integer() > static_cast<std::int64_t>(kSpaces.size()))
    fail_type("tojson(): 'indent' must be an integer up to 64 or a text", *value);
  return kSpaces.substr(0, static_cast<std::size_t>(std::max<std::int64_t>(value->integer(), 0)));
}

Value tojson_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  require_defined(input);
  JsonStyle style;
  style.ensure_ascii = bound.boolean(0, false);
  style.indent = indent_of(bound.set(1));
  style.sort_keys = bound.boolean(3, false);
  if (style.indent) style.item_separator = ",";
  if (const Value* const separators = bound.set(2)) {
    const Values& pair = runtime.iterate(*separators);
    if (pair.size() != 2 || !pair[0].is(Kind::text) || !pair[1].is(Kind::text))
      throw TemplateError("tojson(): 'separators' must be two texts");
    style.item_separator = pair[0].text().bytes();
    style.key_separator = pair[1].text().bytes();
  }
  return runtime.text(to_json(input, style, runtime.heap()));
}

constexpr std::array<std::pair<std::string_view, Function>, 22> kTextFilters = {{
    {"trim", as_method<find_text_method, kStrip>},
    {"upper", as_method<find_text_method, kUpper>},
    {"lower", as_method<find_text_method, kLower>},
    {"capitalize", as_method<find_text_method, kCapitalize>},
    {"center", as_method<find_text_method, kCenter>},
    {"title", title_filter},
    {"string", string_filter},
    {"safe", safe_filter},
    {"replace", replace_filter},
    {"format", format_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"forceescape", escape_filter},
    {"indent", indent_filter},
    {"truncate", truncate_filter},
    {"wordcount", wordcount_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
    {"default", default_filter},
    {"tojson", tojson_filter},
}};

}  // namespace

Function find_text_filter(std::string_view name) {
  if (name == "d") name = "default";
  const auto* const found =
      std::find_if(kTextFilters.begin(), kTextFilters.end(), [&](const auto& each) { return each.first == name; });
  return found == kTextFilters.end() ? nullptr : found->second;
}

}  // namespace troupe::engine::chat
