// UTF-8 one character at a time, for bytes that may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::engine {

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

// `text` must not be empty.
[[nodiscard]] Utf8Char next_utf8(std::string_view text);

// Appends the UTF-8 form of a code point below 0x110000.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace troupe::engine
