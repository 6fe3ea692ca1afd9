// The characters of a text: code points, and bytes that are no UTF-8.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "config/utf8.h"
#include "engine/chat/values/meter.h"

namespace troupe::engine::chat {

// U+FFFD's place is taken by the byte itself, above all code points, so that two wrong bytes differ.
inline constexpr char32_t kWrongByte = 0x110000;

struct Character {
  char32_t code_point;
  std::size_t length;
};

inline Character character_at(std::string_view text, std::size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte < 0x80) return {byte, 1};
  const Utf8Char next = next_utf8(text.substr(position, 4));
  if (next.status == Utf8Status::valid) return {next.code_point, next.length};
  return {kWrongByte + byte, 1};
}

// The character that ends before `end`.
inline Character character_before(std::string_view text, std::size_t end) {
  const auto byte = static_cast<unsigned char>(text[end - 1]);
  if (byte < 0x80) return {byte, 1};
  for (std::size_t length = 1; length <= 4 && length <= end; ++length) {
    const Character found = character_at(text.substr(0, end), end - length);
    if (found.length == length && found.code_point < kWrongByte) return found;
    if ((static_cast<unsigned char>(text[end - length]) & 0xC0) != 0x80) break;
  }
  return {kWrongByte + byte, 1};
}

inline constexpr std::size_t kCharacterBytesPerStep = 8;

// Calls visit(character, its place) for each character from `begin` on, until it returns false. Returns the place where
// it did; the size if it never did.
template <class Visit>
std::size_t visit_characters(std::string_view text, Meter& meter, std::size_t begin, Visit visit) {
  constexpr std::size_t kRun = 64;
  for (std::size_t at = begin; at < text.size();) {
    const std::size_t stop = std::min(at + kRun, text.size());
    meter.work(1 + (stop - at) / kCharacterBytesPerStep);
    while (at < stop) {
      const Character each = character_at(text, at);
      if (!visit(each, at)) return at;
      at += each.length;
    }
  }
  return text.size();
}

// The same from `end` down; visit(character, where it begins). Returns the end of the character at which it stopped.
template <class Visit>
std::size_t visit_characters_back(std::string_view text, Meter& meter, std::size_t end, Visit visit) {
  constexpr std::size_t kRun = 64;
  for (std::size_t at = end; at > 0;) {
    const std::size_t stop = at > kRun ? at - kRun : 0;
    meter.work(1 + (at - stop) / kCharacterBytesPerStep);
    while (at > stop) {
      const Character each = character_before(text, at);
      if (!visit(each, at - each.length)) return at;
      at -= each.length;
    }
  }
  return 0;
}

}  // namespace troupe::engine::chat
