#include "engine/constraints/expressions/value_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

#include "config/assert.h"
#include "engine/constraints/expressions/characters.h"

namespace troupe::engine::constraints {
namespace {

using chat::Json;

// Number::toString of ECMA-262.
std::string number_text(double value) {
  TROUPE_ASSERT(std::isfinite(value));
  if (value == 0) return "0";
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(value), std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = shortest.find('e');
  std::string digits(shortest.substr(0, e));
  if (digits.size() > 1) digits.erase(1, 1);
  int exponent = 0;
  const std::size_t sign = shortest[e + 1] == '+' ? 1 : 0;  // from_chars takes no '+'
  std::from_chars(shortest.data() + e + 1 + sign, shortest.data() + shortest.size(), exponent);

  const int num_digits = static_cast<int>(digits.size());
  const int point = exponent + 1;  // digits before it
  std::string text = value < 0 ? "-" : "";
  if (point > 21 || point <= -6) {
    text += digits.substr(0, 1);
    if (num_digits > 1) text += '.' + digits.substr(1);
    text += exponent < 0 ? "e-" : "e+";
    return text + std::to_string(std::abs(exponent));
  }
  if (point <= 0) return text + "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
  if (num_digits <= point) return text + digits + std::string(static_cast<std::size_t>(point - num_digits), '0');
  return text + digits.substr(0, static_cast<std::size_t>(point)) + '.' +
         digits.substr(static_cast<std::size_t>(point));
}

std::string quoted_text(std::string_view text) { return '"' + written(text, Writing::json) + '"'; }

// A value without parts; nothing for lists and objects.
struct LeafText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const chat::LargeInteger& value) const { return value.digits; }
  std::string operator()(const std::string& value) const { return quoted_text(value); }
  std::string operator()(const Json::List&) const { return {}; }
  std::string operator()(const Json::Object&) const { return {}; }
};

struct OpenValue {
  const Json* value;
  std::size_t next = 0;  // part
};

}  // namespace

std::string value_text(const Json& value) {
  std::string text;
  std::vector<OpenValue> open;
  const auto add = [&](const Json& each) {
    if (each.list() != nullptr || each.object() != nullptr) {
      text += each.list() != nullptr ? '[' : '{';
      open.push_back({&each});
    } else {
      text += std::visit(LeafText(), each.value);
    }
  };
  add(value);
  while (!open.empty()) {
    const Json& within = *open.back().value;
    const std::size_t part = open.back().next++;
    const bool is_list = within.list() != nullptr;
    if (part == (is_list ? within.list()->size() : within.object()->size())) {
      text += is_list ? ']' : '}';
      open.pop_back();
      continue;
    }
    if (part > 0) text += ',';
    if (!is_list) text += quoted_text((*within.object())[part].first) + ':';
    add(is_list ? (*within.list())[part] : (*within.object())[part].second);
  }
  return text;
}

}  // namespace troupe::engine::constraints
