#include "config/utf8.h"

#include <algorithm>

namespace troupe {

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

std::size_t incomplete_end(std::string_view text) {
  for (std::size_t count = 1; count <= std::min<std::size_t>(3, text.size()); ++count) {
    const std::string_view end = text.substr(text.size() - count);
    if ((static_cast<unsigned char>(end[0]) & 0xC0) == 0x80) continue;  // a continuation byte
    return next_utf8(end).status == Utf8Status::incomplete ? count : 0;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char next = next_utf8(text);
    if (next.status != Utf8Status::valid) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = next_utf8(text);
    const bool is_valid = next.status == Utf8Status::valid;
    out.append(is_valid ? text.substr(0, next.length) : kReplacementCharacter);
    text.remove_prefix(is_valid ? next.length : 1);
  }
  return out;
}

}  // namespace troupe
