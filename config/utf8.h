// UTF-8 as in RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

enum class Utf8Status : std::uint8_t {
  valid,       // a whole character
  invalid,     // bytes that no continuation can make valid
  incomplete,  // the text ends inside a character that may still become valid
};

// The first character of a text. An ill-formed sequence is cut as Unicode recommends (maximal subpart, The Unicode
// Standard 3.9, table 3-7): `length` bytes stand for one U+FFFD.
struct Utf8Char {
  Utf8Status status;
  std::uint8_t length;      // bytes, 1 to 4
  char32_t code_point = 0;  // of a valid one
};

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// `text` must not be empty. O(1).
[[nodiscard]] Utf8Char next_utf8(std::string_view text);

// The number of bytes at the end of `text`, at most 3, that are the beginning of an incomplete character. O(1).
[[nodiscard]] std::size_t incomplete_end(std::string_view text);

// Whether all of `text` is UTF-8. O(text.size()).
[[nodiscard]] bool is_utf8(std::string_view text);

// `text` with every byte that does not belong to a UTF-8 character replaced by U+FFFD. O(text.size()).
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace troupe
