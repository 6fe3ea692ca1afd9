#include "engine/tokenizers/unicode.h"

#include <utf8proc.h>

#include <array>

namespace troupe::engine {

// Not utf8proc_iterate: it does not say where an ill-formed sequence ends, or whether more bytes could complete it.
Utf8Char next_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {Utf8Status::valid, 1, first};
  if (first < 0xC2 || first > 0xF4) return {Utf8Status::invalid, 1};  // continuation, overlong, beyond U+10FFFF
  const std::uint8_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;

  // The second byte already shows overlong forms, surrogates and too large values.
  std::uint8_t low = 0x80, high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;

  char32_t code_point = first & (0xFFu >> (length + 1));
  for (std::uint8_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Status::incomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Status::invalid, i};
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::valid, length, code_point};
}

void append_utf8(std::string& out, char32_t code_point) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  out.append(bytes.begin(), bytes.begin() + count);
}

}  // namespace troupe::engine
