#include "engine/chat/values/python_text.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>
#include <string>

#include "config/utf8.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine::chat {
namespace {

// U+FFFD's place is taken by the byte itself, above all code points, so that two wrong bytes differ.
constexpr char32_t kWrongByte = 0x110000;

struct Character {
  char32_t code_point;
  std::size_t length;
};

Character character_at(std::string_view text, std::size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte < 0x80) return {byte, 1};
  const Utf8Char next = next_utf8(text.substr(position, 4));
  if (next.status == Utf8Status::valid) return {next.code_point, next.length};
  return {kWrongByte + byte, 1};
}

// The character that ends before `end`.
Character character_before(std::string_view text, std::size_t end) {
  for (std::size_t length = 1; length <= 4 && length <= end; ++length) {
    const Character found = character_at(text.substr(0, end), end - length);
    if (found.length == length && found.code_point < kWrongByte) return found;
    if ((static_cast<unsigned char>(text[end - length]) & 0xC0) != 0x80) break;
  }
  return {kWrongByte + static_cast<unsigned char>(text[end - 1]), 1};
}

bool contains_character(std::string_view characters, char32_t wanted) {
  for (std::size_t i = 0; i < characters.size();) {
    const Character each = character_at(characters, i);
    if (each.code_point == wanted) return true;
    i += each.length;
  }
  return false;
}

utf8proc_category_t category_of(char32_t code_point) {
  return code_point < kWrongByte ? utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) : UTF8PROC_CATEGORY_CN;
}

bool is_cased_lower(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_LL; }
bool is_cased_upper(char32_t c) {
  const auto category = category_of(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
}

char32_t lower_of(char32_t c) {
  return c < kWrongByte ? static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))) : c;
}
char32_t upper_of(char32_t c) {
  return c < kWrongByte ? static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))) : c;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Maps each character; `map` is also told whether the one before it was a letter.
template <class Map>
Text map_characters(const Text& text, Map map) {
  Text mapped;
  const std::string_view bytes = text.bytes();
  bool after_letter = false;
  std::string one;
  for (std::size_t i = 0; i < bytes.size();) {
    const Character each = character_at(bytes, i);
    const char32_t to = map(each.code_point, after_letter);
    one.clear();
    if (each.code_point == 0xDF && to == 0x1E9E)
      one = "SS";  // Python's full mapping of the sharp s
    else if (to < kWrongByte)
      append_utf8(one, to);
    else
      one = bytes.substr(i, each.length);
    mapped.append(one, text.origin(i));
    after_letter = is_cased_lower(each.code_point) || is_cased_upper(each.code_point);
    i += each.length;
  }
  return mapped;
}

std::vector<Text> split_at_space(const Text& text, std::int64_t max_splits) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  std::size_t begin = leading_space(bytes);
  while (begin < bytes.size()) {
    if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
      parts.push_back(text.substr(begin, bytes.size()));
      break;
    }
    std::size_t end = begin;
    while (end < bytes.size()) {
      const Character each = character_at(bytes, end);
      if (is_space(each.code_point)) break;
      end += each.length;
    }
    parts.push_back(text.substr(begin, end));
    begin = end + leading_space(bytes.substr(end));
  }
  return parts;
}

std::vector<Text> split_at_space_from_right(const Text& text, std::int64_t max_splits) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  std::size_t end = bytes.size() - trailing_space(bytes);
  while (end > 0) {
    if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
      parts.push_back(text.substr(0, end));
      break;
    }
    std::size_t begin = end;
    while (begin > 0) {
      const Character each = character_before(bytes, begin);
      if (is_space(each.code_point)) break;
      begin -= each.length;
    }
    parts.push_back(text.substr(begin, end));
    end = begin - trailing_space(bytes.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

std::vector<std::size_t> character_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < text.size(); i += character_at(text, i).length) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += character_at(text, i).length) ++count;
  return count;
}

std::size_t find_bytes(std::string_view text, std::string_view wanted, std::size_t begin) {
  if (begin > text.size()) return std::string_view::npos;
  if (wanted.empty()) return begin;
  const void* const found = memmem(text.data() + begin, text.size() - begin, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_bytes(std::string_view text, std::string_view wanted) {
  const std::string back(text.rbegin(), text.rend()), wanted_back(wanted.rbegin(), wanted.rend());
  const std::size_t found = find_bytes(back, wanted_back);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::size_t leading_space(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const Character each = character_at(text, end);
    if (!is_space(each.code_point)) break;
    end += each.length;
  }
  return end;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    const Character each = character_before(text, begin);
    if (!is_space(each.code_point)) break;
    begin -= each.length;
  }
  return text.size() - begin;
}

Text strip(const Text& text, Side side, const std::string_view* characters) {
  const std::string_view bytes = text.bytes();
  const auto is_removed = [&](char32_t c) {
    return characters != nullptr ? contains_character(*characters, c) : is_space(c);
  };
  std::size_t begin = 0, end = bytes.size();
  while (side != Side::right && begin < end) {
    const Character each = character_at(bytes, begin);
    if (!is_removed(each.code_point)) break;
    begin += each.length;
  }
  while (side != Side::left && begin < end) {
    const Character each = character_before(bytes, end);
    if (!is_removed(each.code_point)) break;
    end -= each.length;
  }
  return text.substr(begin, end);
}

std::vector<Text> split(const Text& text, const std::string_view* separator, std::int64_t max_splits) {
  if (separator == nullptr) return split_at_space(text, max_splits);
  std::vector<Text> parts;
  std::size_t begin = 0;
  while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
    const std::size_t found = find_bytes(text.bytes(), *separator, begin);
    if (found == std::string::npos) break;
    parts.push_back(text.substr(begin, found));
    begin = found + separator->size();
  }
  parts.push_back(text.substr(begin, text.size()));
  return parts;
}

std::vector<Text> split_from_right(const Text& text, const std::string_view* separator, std::int64_t max_splits) {
  if (separator == nullptr) return split_at_space_from_right(text, max_splits);
  std::vector<Text> parts;
  const std::string back(text.bytes().rbegin(), text.bytes().rend()), wanted(separator->rbegin(), separator->rend());
  std::size_t begin = 0;  // in `back`
  while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
    const std::size_t found = find_bytes(back, wanted, begin);
    if (found == std::string::npos) break;
    parts.push_back(text.substr(text.size() - found, text.size() - begin));
    begin = found + wanted.size();
  }
  parts.push_back(text.substr(0, text.size() - begin));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < bytes.size();) {
    const Character each = character_at(bytes, i);
    std::size_t next = i + each.length;
    if (is_line_end(each.code_point)) {
      if (each.code_point == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.substr(begin, keep_ends ? next : i));
      begin = next;
    }
    i = next;
  }
  if (begin < bytes.size()) lines.push_back(text.substr(begin, bytes.size()));
  return lines;
}

std::size_t count_occurrences(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return count_characters(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = find_bytes(text, wanted); at != std::string_view::npos;
       at = find_bytes(text, wanted, at + wanted.size()))
    ++count;
  return count;
}

std::size_t replaced_size(const Text& text, std::string_view from, const Text& to, std::int64_t max_count) {
  std::size_t count = count_occurrences(text.bytes(), from);
  if (max_count >= 0) count = std::min(count, static_cast<std::size_t>(max_count));
  return text.size() - count * from.size() + count * to.size();
}

Text replace(const Text& text, std::string_view from, const Text& to, std::int64_t max_count) {
  Text replaced;
  std::size_t begin = 0;
  std::int64_t count = 0;
  if (from.empty()) {
    const auto offsets = character_offsets(text.bytes());
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (max_count < 0 || count++ < max_count) replaced.append(to);
      if (i + 1 < offsets.size()) replaced.append(text, offsets[i], offsets[i + 1]);
    }
    return replaced;
  }
  while (max_count < 0 || count++ < max_count) {
    const std::size_t found = find_bytes(text.bytes(), from, begin);
    if (found == std::string::npos) break;
    replaced.append(text, begin, found);
    replaced.append(to);
    begin = found + from.size();
  }
  replaced.append(text, begin, text.size());
  return replaced;
}

Text change_case(const Text& text, Case to) {
  bool is_first = true;
  return map_characters(text, [&](char32_t c, bool after_letter) -> char32_t {
    const bool was_first = is_first;
    is_first = false;
    switch (to) {
      case Case::lower:
        return lower_of(c);
      case Case::upper:
        return upper_of(c) == c && c == 0xDF ? 0x1E9E : upper_of(c);
      case Case::capitalize:
        return was_first ? upper_of(c) : lower_of(c);
      case Case::title:
        return after_letter ? lower_of(c) : upper_of(c);
      case Case::swap:
        return is_cased_upper(c) ? lower_of(c) : upper_of(c);
    }
    return c;
  });
}

Text title_words(const Text& text) {
  bool begins_word = true;
  return map_characters(text, [&](char32_t c, bool) -> char32_t {
    const bool is_border = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    const char32_t to = begins_word ? upper_of(c) : lower_of(c);
    begins_word = is_border;
    return to;
  });
}

bool is_lower(std::string_view text) {
  bool any = false;
  for (std::size_t i = 0; i < text.size();) {
    const Character each = character_at(text, i);
    if (is_cased_upper(each.code_point)) return false;
    any = any || is_cased_lower(each.code_point);
    i += each.length;
  }
  return any;
}

bool is_upper(std::string_view text) {
  bool any = false;
  for (std::size_t i = 0; i < text.size();) {
    const Character each = character_at(text, i);
    if (is_cased_lower(each.code_point)) return false;
    any = any || is_cased_upper(each.code_point);
    i += each.length;
  }
  return any;
}

std::size_t count_words(std::string_view text) {
  std::size_t count = 0;
  bool is_within = false;
  for (std::size_t i = 0; i < text.size();) {
    const Character each = character_at(text, i);
    const auto category = category_of(each.code_point);
    const bool is_word = each.code_point == U'_' || is_alphabetic(each.code_point) ||
                         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    if (is_word && !is_within) ++count;
    is_within = is_word;
    i += each.length;
  }
  return count;
}

bool all_characters(std::string_view text, bool (*is)(char32_t)) {
  for (std::size_t i = 0; i < text.size();) {
    const Character each = character_at(text, i);
    if (!is(each.code_point)) return false;
    i += each.length;
  }
  return !text.empty();
}

bool is_alphabetic(char32_t c) {
  const auto category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto category = category_of(c);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

}  // namespace troupe::engine::chat
