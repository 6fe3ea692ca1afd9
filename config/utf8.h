// UTF-8 as RFC 3629 has it: no surrogates, nothing overlong, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// The character that a text begins with.
struct Utf8Character {
  std::size_t bytes = 0;  // 0: the text begins with none
  char32_t code = 0;
};

// O(1).
[[nodiscard]] Utf8Character first_character(std::string_view text);

// Bytes at the end of `text`, at most 3, that begin a character which is not complete yet: more text may make it one.
// O(1).
[[nodiscard]] std::size_t incomplete_end(std::string_view text);

// Whether all of `text` is UTF-8. O(text.size()).
[[nodiscard]] bool is_utf8(std::string_view text);

// `text` with every byte that does not belong to a UTF-8 character replaced by U+FFFD. O(text.size()).
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace troupe
