// Methods of str.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/values/python_text.h"

namespace troupe::engine::chat {
namespace {

Value list_of(Runtime& runtime, const Text& text, const Spans& parts) {
  Values items;
  items.reserve(parts.size());
  for (const Span& each : parts) items.push_back(runtime.part(text, each.begin, each.end));
  return runtime.heap().list(std::move(items));
}

template <Side side>
Value strip_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("strip", arguments, {"chars"});
  const Text* const characters = bound.optional_text(0);
  const std::string_view bytes = characters != nullptr ? characters->bytes() : std::string_view();
  const Span kept = strip(self.text().bytes(), side, runtime.meter(), characters != nullptr ? &bytes : nullptr);
  if (kept.end - kept.begin == self.text().size()) return self;
  return runtime.part(self.text(), kept.begin, kept.end);
}

template <bool from_right>
Value split_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"});
  const Text* const separator = bound.optional_text(0);
  if (separator != nullptr && separator->empty()) throw TemplateError("empty separator");
  const std::string_view bytes = separator != nullptr ? separator->bytes() : std::string_view();
  const std::string_view* const at = separator != nullptr ? &bytes : nullptr;
  return list_of(
      runtime, self.text(),
      (from_right ? split_from_right : split)(self.text().bytes(), at, bound.integer(1, -1), runtime.meter()));
}

Value splitlines_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"});
  return list_of(runtime, self.text(), split_lines(self.text().bytes(), bound.boolean(0, false), runtime.meter()));
}

template <bool at_end>
Value begins_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(at_end ? "endswith" : "startswith", arguments, {"prefix"});
  const std::string_view text = self.text().bytes();
  const auto has = [&](const Value& part) {
    if (!part.is(Kind::text))
      fail_type(fmt::format("{} first arg must be str or a tuple of str", at_end ? "endswith" : "startswith"), part);
    runtime.heap().step();
    return (at_end ? ends_with : begins_with)(text, part.text().bytes(), runtime.meter());
  };
  const Value& wanted = bound.required(0);
  if (!wanted.is(Kind::list)) return Value::boolean(has(wanted));
  const auto& parts = wanted.list().items;
  return Value::boolean(std::any_of(parts.begin(), parts.end(), has));
}

Value replace_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"});
  return runtime.text(
      replace(self.text(), bound.text(0).bytes(), bound.text(1), bound.integer(2, -1), runtime.meter()));
}

template <Case to>
Value case_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("case", arguments, {});
  return runtime.text(change_case(self.text(), to, runtime.meter()));
}

template <bool from_right, bool must_be_there>
Value find_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("find", arguments, {"sub", "start", "end"});
  const bool is_all = bound.set(1) == nullptr && bound.set(2) == nullptr;
  const Value part = is_all ? self : runtime.slice(self, bound[1], bound[2], nullptr);
  const std::string_view wanted = bound.text(0).bytes(), bytes = part.text().bytes();
  const std::size_t found =
      from_right ? find_last_bytes(bytes, wanted, runtime.meter()) : find_bytes(bytes, wanted, runtime.meter());
  if (found == std::string_view::npos) {
    if (must_be_there) throw TemplateError("substring not found");
    return Value::integer(-1);
  }
  // The slice begins as many characters in as its `start` says.
  std::int64_t start = bound.integer(1, 0);
  if (start < 0) start = std::max<std::int64_t>(0, start + runtime.length(self));
  return Value::integer(start + static_cast<std::int64_t>(count_characters(bytes.substr(0, found), runtime.meter())));
}

Value count_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("count", arguments, {"sub"});
  return Value::integer(
      static_cast<std::int64_t>(count_occurrences(self.text().bytes(), bound.text(0).bytes(), runtime.meter())));
}

Value join_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"});
  Text joined;
  bool is_first = true;
  for (const Value& each : runtime.iterate(bound.required(0))) {
    if (!each.is(Kind::text)) fail_type("sequence item: expected str instance", each);
    if (!is_first) joined.append(self.text(), runtime.meter());
    is_first = false;
    joined.append(each.text(), runtime.meter());
  }
  return runtime.text(std::move(joined));
}

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_digit(c); }

template <bool (*is)(char32_t)>
Value all_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("is", arguments, {});
  return Value::boolean(all_characters(self.text().bytes(), is, runtime.meter()));
}

template <bool (*is)(std::string_view, Meter&)>
Value case_is_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("is", arguments, {});
  return Value::boolean(is(self.text().bytes(), runtime.meter()));
}

template <bool at_end>
Value remove_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(at_end ? "removesuffix" : "removeprefix", arguments, {"affix"});
  const Text& text = self.text();
  const std::string_view affix = bound.text(0).bytes();
  if (!(at_end ? ends_with : begins_with)(text.bytes(), affix, runtime.meter())) return self;
  return at_end ? runtime.part(text, 0, text.size() - affix.size()) : runtime.part(text, affix.size(), text.size());
}

template <bool from_right>
Value partition_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("partition", arguments, {"sep"});
  const Text& text = self.text();
  const std::string_view separator = bound.text(0).bytes();
  if (separator.empty()) throw TemplateError("empty separator");
  const std::size_t at = (from_right ? find_last_bytes(text.bytes(), separator, runtime.meter())
                                     : find_bytes(text.bytes(), separator, runtime.meter()));
  Values parts = {self, runtime.text(""), runtime.text("")};
  if (at != std::string_view::npos)
    parts = {runtime.part(text, 0, at), runtime.part(text, at, at + separator.size()),
             runtime.part(text, at + separator.size(), text.size())};
  else if (from_right)
    std::swap(parts[0], parts[2]);
  return runtime.heap().list(std::move(parts), ListForm::tuple);
}

// How text is set in a wider field: the share of the fill that comes before it, of 2.
template <int before_of_two>
Value pad_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("just", arguments, {"width", "fillchar"});
  const Text* const fill = bound.optional_text(1);
  if (fill != nullptr && count_characters(fill->bytes(), runtime.meter()) != 1)
    throw TemplateError("The fill character must be exactly one character long");
  const std::int64_t width = bound.integer(0, 0);
  const std::int64_t missing = width <= 0 ? 0 : width - runtime.length(self);
  if (missing <= 0) return self;
  const Value space = fill != nullptr ? *bound[1] : runtime.text(" ");
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
  const Text& text = self.text();
  const std::int64_t width = bound.integer(0, 0), missing = width <= 0 ? 0 : width - runtime.length(self);
  if (missing <= 0) return self;
  const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  const Value zeros = runtime.arithmetic(Operator::multiply, runtime.text("0"), Value::integer(missing));
  Text filled;
  filled.append(text, 0, has_sign ? 1 : 0, runtime.meter());
  filled.append(zeros.text(), runtime.meter());
  filled.append(text, has_sign ? 1 : 0, text.size(), runtime.meter());
  return runtime.text(std::move(filled));
}

Value format_method(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  return runtime.text(format_braces(runtime, self.text(), arguments));
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
