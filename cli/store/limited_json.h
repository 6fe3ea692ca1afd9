// JSON of others: read only if it is not nested deeper than what is asked for ever is, so that it takes no more memory
// than some times its length.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace troupe::cli {

inline constexpr std::size_t kMaxJsonDepth = 12;

// Whether brackets outside of strings are nested deeper. O(text.size()).
[[nodiscard]] inline bool is_nested_deeper(std::string_view text, std::size_t most) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

// Discarded where it is no JSON, or nested deeper than kMaxJsonDepth.
template <class Json = nlohmann::json>
[[nodiscard]] Json parse_limited(std::string_view text) {
  if (is_nested_deeper(text, kMaxJsonDepth)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace troupe::cli
