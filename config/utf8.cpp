#include "config/utf8.h"

#include <algorithm>

namespace troupe {
namespace {

// Bytes of a character with this first byte; 0 if no character begins with it.
std::size_t bytes_of(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
}

// Whether `second` may follow `lead`.
bool may_follow(unsigned char lead, unsigned char second) {
  if ((second & 0xc0) != 0x80) return false;
  if (lead == 0xe0) return second >= 0xa0;  // else overlong
  if (lead == 0xed) return second < 0xa0;   // else a surrogate
  if (lead == 0xf0) return second >= 0x90;  // else overlong
  if (lead == 0xf4) return second < 0x90;   // else above U+10FFFF
  return true;
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t size = bytes_of(byte(0));
  if (size == 0 || text.size() < size) return {};
  if (size == 1) return {1, byte(0)};
  if (!may_follow(byte(0), byte(1))) return {};
  char32_t code = byte(0) & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  return {size, code};
}

std::size_t incomplete_end(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t count = 1; count <= std::min<std::size_t>(3, text.size()); ++count) {
    const std::size_t begin = text.size() - count;
    if ((byte(begin) & 0xc0) == 0x80) continue;  // a continuation byte
    if (bytes_of(byte(begin)) <= count) return 0;
    return count == 1 || may_follow(byte(begin), byte(begin + 1)) ? count : 0;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = first_character(text).bytes;
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = first_character(text).bytes;
    out.append(size ? text.substr(0, size) : std::string_view("\xef\xbf\xbd"));
    text.remove_prefix(size ? size : 1);
  }
  return out;
}

}  // namespace troupe
