// Finding markers in a text that is still being written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace troupe::engine {

inline constexpr std::string_view kSpace = " \t\r\n";

[[nodiscard]] inline std::size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(kSpace), text.size());
}

// The length without white space at the end.
[[nodiscard]] inline std::size_t without_trailing_space(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

// Whether more text can make this the whole marker.
[[nodiscard]] inline bool may_become(std::string_view text, std::string_view marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

// How many bytes at the end of `text` are the beginning of `marker`, but not all of it.
[[nodiscard]] inline std::size_t partial_marker(std::string_view text, std::string_view marker) {
  for (std::size_t length = marker.empty() ? 0 : std::min(text.size(), marker.size() - 1); length > 0; --length)
    if (text.ends_with(marker.substr(0, length))) return length;
  return 0;
}

}  // namespace troupe::engine
