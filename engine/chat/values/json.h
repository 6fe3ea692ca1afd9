// JSON values: how conversations, tools and further variables reach a template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/result.h"

namespace troupe::engine::chat {

// An integer beyond 64 bits: an optional '-' and digits.
struct LargeInteger {
  std::string digits;
};

// A value. Objects keep their order. Not deeper than kMaxJsonDepth (what is rendered is checked).
struct Json {
  using List = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // no name twice

  Json() = default;  // null
  Json(bool value) : value(value) {}
  Json(int value) : value(std::int64_t{value}) {}
  Json(std::int64_t value) : value(value) {}
  Json(double value) : value(value) {}
  Json(LargeInteger value) : value(std::move(value)) {}
  Json(const char* value) : value(std::string(value)) {}
  Json(std::string value) : value(std::move(value)) {}
  Json(std::string_view value) : value(std::string(value)) {}
  Json(List value) : value(std::move(value)) {}
  Json(Object value) : value(std::move(value)) {}

  // The member of an object; null if this is none or has no such member.
  const Json* find(std::string_view name) const;
  const std::string* text() const { return std::get_if<std::string>(&value); }
  const List* list() const { return std::get_if<List>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }

  std::variant<std::monostate, bool, std::int64_t, double, LargeInteger, std::string, List, Object> value;
};

// Of a name that occurs twice in an object the last value counts, as in Python. Error: invalid_argument (not JSON, not
// UTF-8, deeper than kMaxJsonDepth). O(text).
[[nodiscard]] Result<Json> parse_json(std::string_view text);

}  // namespace troupe::engine::chat
