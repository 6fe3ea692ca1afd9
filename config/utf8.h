// UTF-8 as in RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// The first character of a text.
struct Utf8Character {
  std::size_t bytes = 0;  // 0: the text does not begin with a valid character
  char32_t code = 0;
};

// O(1).
[[nodiscard]] Utf8Character first_character(std::string_view text);

// The number of bytes at the end of `text`, at most 3, that are the beginning of an incomplete character. O(1).
[[nodiscard]] std::size_t incomplete_end(std::string_view text);

// Whether all of `text` is UTF-8. O(text.size()).
[[nodiscard]] bool is_utf8(std::string_view text);

// `text` with every byte that does not belong to a UTF-8 character replaced by U+FFFD. O(text.size()).
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace troupe
