// Methods of str.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/values/python_text.h"

namespace troupe::engine::chat {
namespace {

// The text of a method, and the work of going through it.
const Text& self_text(Runtime& runtime, const Value& self) {
  runtime.heap().touch(self.text().size());
  return self.text();
}

Value list_of(Runtime& runtime, std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& each : texts) {
    runtime.heap().step();
    items.push_back(runtime.text(std::move(each)));
  }
  return runtime.heap().list(std::move(items));
}

template <Side side>
Value strip_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("strip", arguments, {"chars"});
  const Text* const characters = bound.optional_text(0);
  if (characters == nullptr) return runtime.text(strip(self_text(runtime, self), side));
  runtime.heap().touch(self.text().size() * std::min<std::size_t>(characters->size(), 64));
  const std::string_view bytes = characters->bytes();
  return runtime.text(strip(self_text(runtime, self), side, &bytes));
}

template <bool from_right>
Value split_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"});
  const Text* const separator = bound.optional_text(0);
  if (separator != nullptr && separator->empty()) throw TemplateError("empty separator");
  const std::string_view bytes = separator != nullptr ? std::string_view(separator->bytes()) : std::string_view();
  const std::string_view* const at = separator != nullptr ? &bytes : nullptr;
  const std::int64_t most = bound.integer(1, -1);
  const Text& text = self_text(runtime, self);
  runtime.heap().check_room(2 * text.size() +
                            sizeof(Text) * (separator ? count_occurrences(text.bytes(), bytes) : text.size() / 2));
  return list_of(runtime, from_right ? split_from_right(text, at, most) : split(text, at, most));
}

Value splitlines_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"});
  return list_of(runtime, split_lines(self_text(runtime, self), bound.boolean(0, false)));
}

template <bool at_end>
Value begins_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(at_end ? "endswith" : "startswith", arguments, {"prefix"});
  const std::string_view text = self_text(runtime, self).bytes();
  const auto has = [&](const Value& part) {
    if (!part.is(Kind::text))
      fail_type(fmt::format("{} first arg must be str or a tuple of str", at_end ? "endswith" : "startswith"), part);
    const std::string_view wanted = part.text().bytes();
    return at_end ? text.ends_with(wanted) : text.starts_with(wanted);
  };
  const Value& wanted = bound.required(0);
  if (!wanted.is(Kind::list)) return Value::boolean(has(wanted));
  const auto& parts = wanted.list().items;
  return Value::boolean(std::any_of(parts.begin(), parts.end(), has));
}

Value replace_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"});
  const Text& text = self_text(runtime, self);
  const Text& from = bound.text(0);
  const Text& to = bound.text(1);
  const std::int64_t count = bound.integer(2, -1);
  const std::size_t size = replaced_size(text, from.bytes(), to, count);
  runtime.heap().check_room(size);
  runtime.heap().touch(size);
  return runtime.text(replace(text, from.bytes(), to, count));
}

template <Case to>
Value case_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("case", arguments, {});
  return runtime.text(change_case(self_text(runtime, self), to));
}

// The place of a character, of a place in bytes.
std::int64_t character_index(std::string_view text, std::size_t byte) {
  return byte == std::string_view::npos ? -1 : static_cast<std::int64_t>(count_characters(text.substr(0, byte)));
}

template <bool from_right, bool must_be_there>
Value find_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("find", arguments, {"sub", "start", "end"});
  const Text& text = self_text(runtime, self);
  const Value part = runtime.slice(self, bound[1], bound[2], nullptr);
  const std::string_view wanted = bound.text(0).bytes(), bytes = part.text().bytes();
  const std::int64_t found =
      character_index(bytes, from_right ? find_last_bytes(bytes, wanted) : find_bytes(bytes, wanted));
  if (found < 0) {
    if (must_be_there) throw TemplateError("substring not found");
    return Value::integer(-1);
  }
  // The slice begins as many characters in as its `start` says.
  std::int64_t start = bound.integer(1, 0);
  if (start < 0) start = std::max<std::int64_t>(0, start + static_cast<std::int64_t>(count_characters(text.bytes())));
  return Value::integer(start + found);
}

Value count_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("count", arguments, {"sub"});
  const Text& text = self_text(runtime, self);
  return Value::integer(static_cast<std::int64_t>(count_occurrences(text.bytes(), bound.text(0).bytes())));
}

Value join_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"});
  Text joined;
  bool is_first = true;
  for (const Value& each : runtime.iterate(bound.required(0))) {
    if (!each.is(Kind::text)) fail_type("sequence item: expected str instance", each);
    runtime.heap().touch(self.text().size() + each.text().size());
    runtime.heap().check_room(joined.size() + self.text().size() + each.text().size());
    if (!is_first) joined.append(self.text());
    is_first = false;
    joined.append(each.text());
  }
  return runtime.text(std::move(joined));
}

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_digit(c); }

template <bool (*is)(char32_t)>
Value all_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("is", arguments, {});
  return Value::boolean(all_characters(self_text(runtime, self).bytes(), is));
}

template <bool (*is)(std::string_view)>
Value case_is_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("is", arguments, {});
  return Value::boolean(is(self_text(runtime, self).bytes()));
}

template <bool at_end>
Value remove_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(at_end ? "removesuffix" : "removeprefix", arguments, {"affix"});
  const Text& text = self_text(runtime, self);
  const std::string& affix = bound.text(0).bytes();
  if (at_end ? !text.bytes().ends_with(affix) : !text.bytes().starts_with(affix)) return self;
  return runtime.text(at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size(), text.size()));
}

template <bool from_right>
Value partition_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("partition", arguments, {"sep"});
  const Text& text = self_text(runtime, self);
  const std::string& separator = bound.text(0).bytes();
  if (separator.empty()) throw TemplateError("empty separator");
  const std::size_t at = from_right ? find_last_bytes(text.bytes(), separator) : find_bytes(text.bytes(), separator);
  std::vector<Value> parts = {self, runtime.text(""), runtime.text("")};
  if (at != std::string_view::npos)
    parts = {runtime.text(text.substr(0, at)), runtime.text(text.substr(at, at + separator.size())),
             runtime.text(text.substr(at + separator.size(), text.size()))};
  else if (from_right)
    std::swap(parts[0], parts[2]);
  return runtime.heap().list(std::move(parts), ListForm::tuple);
}

// How text is set in a wider field: the share of the fill that comes before it, of 2.
template <int before_of_two>
Value pad_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("just", arguments, {"width", "fillchar"});
  const Text& text = self_text(runtime, self);
  const Text* const fill = bound.optional_text(1);
  if (fill != nullptr && count_characters(fill->bytes()) != 1)
    throw TemplateError("The fill character must be exactly one character long");
  const std::int64_t width = bound.integer(0, 0);
  const std::int64_t missing = width - static_cast<std::int64_t>(count_characters(text.bytes()));
  if (missing <= 0) return self;
  const Value space = fill != nullptr ? runtime.text(*fill) : runtime.text(" ");
  // Python's center() puts an odd one before if the width is odd.
  const std::int64_t before = before_of_two == 1   ? missing / 2 + (missing & width & 1)
                              : before_of_two == 2 ? missing
                                                   : 0;
  const Value left = runtime.arithmetic(Operator::multiply, space, Value::integer(before));
  const Value right = runtime.arithmetic(Operator::multiply, space, Value::integer(missing - before));
  return runtime.arithmetic(Operator::add, runtime.arithmetic(Operator::add, left, self), right);
}

Value zfill_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("zfill", arguments, {"width"});
  const Text& text = self_text(runtime, self);
  const std::int64_t missing = bound.integer(0, 0) - static_cast<std::int64_t>(count_characters(text.bytes()));
  if (missing <= 0) return self;
  const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  const Value zeros = runtime.arithmetic(Operator::multiply, runtime.text("0"), Value::integer(missing));
  Text filled = text.substr(0, has_sign ? 1 : 0);
  filled.append(zeros.text());
  filled.append(text, has_sign ? 1 : 0, text.size());
  return runtime.text(std::move(filled));
}

Value format_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  return runtime.text(format_braces(runtime, self_text(runtime, self), arguments));
}

constexpr std::array<std::pair<std::string_view, Function>, 36> kTextMethods = {{
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines_method},
    {"startswith", begins_method<false>},
    {"endswith", begins_method<true>},
    {"replace", replace_method},
    {"upper", case_method<Case::upper>},
    {"lower", case_method<Case::lower>},
    {"casefold", case_method<Case::lower>},
    {"title", case_method<Case::title>},
    {"capitalize", case_method<Case::capitalize>},
    {"swapcase", case_method<Case::swap>},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"join", join_method},
    {"isdigit", all_method<is_digit>},
    {"isdecimal", all_method<is_digit>},
    {"isnumeric", all_method<is_digit>},
    {"isalpha", all_method<is_alphabetic>},
    {"isalnum", all_method<is_alphanumeric>},
    {"isspace", all_method<is_space>},
    {"islower", case_is_method<is_lower>},
    {"isupper", case_is_method<is_upper>},
    {"removeprefix", remove_method<false>},
    {"removesuffix", remove_method<true>},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"center", pad_method<1>},
    {"ljust", pad_method<0>},
    {"rjust", pad_method<2>},
}};

}  // namespace

Function find_text_method(std::string_view name) {
  if (name == "format") return format_method;
  if (name == "zfill") return zfill_method;
  const auto* const found =
      std::find_if(kTextMethods.begin(), kTextMethods.end(), [&](const auto& each) { return each.first == name; });
  return found == kTextMethods.end() ? nullptr : found->second;
}

}  // namespace troupe::engine::chat
