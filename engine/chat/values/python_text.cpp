#include "engine/chat/values/python_text.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/chat/values/characters.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine::chat {
namespace {

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

// Whether a character is one of those of a text: looked up there while they are few, else in one bit for each.
class CharacterSet {
 public:
  CharacterSet(std::string_view characters, Meter& meter) : few_(characters) {
    if (characters.size() <= kFew) return;
    constexpr std::size_t kWords = (kWrongByte + 0x100) / 64;
    meter.touch(kWords * sizeof(std::uint64_t) / 2);
    bits_.resize(kWords);
    visit_characters(characters, meter, 0, [&](const Character& each, std::size_t) {
      bits_[each.code_point / 64] |= std::uint64_t{1} << (each.code_point % 64);
      return true;
    });
  }
  bool contains(char32_t wanted) const {
    if (!bits_.empty()) return (bits_[wanted / 64] >> (wanted % 64) & 1) != 0;
    for (std::size_t at = 0; at < few_.size();) {
      const Character each = character_at(few_, at);
      if (each.code_point == wanted) return true;
      at += each.length;
    }
    return false;
  }

 private:
  static constexpr std::size_t kFew = 8;  // bytes

  std::string_view few_;
  ChargedVector<std::uint64_t> bits_;
};

// Maps each character; `map` is also told whether the one before it was a letter.
template <class Map>
Text map_characters(const Text& text, Meter& meter, Map map) {
  Text mapped;
  mapped.reserve(text.size());
  const std::string_view bytes = text.bytes();
  bool after_letter = false;
  std::string one;
  visit_characters(bytes, meter, 0, [&](const Character& each, std::size_t at) {
    const char32_t to = map(each.code_point, after_letter);
    one.clear();
    if (each.code_point == 0xDF && to == 0x1E9E)
      one = "SS";  // Python's full mapping of the sharp s
    else if (to < 0x80)
      one = static_cast<char>(to);
    else if (to < kWrongByte)
      append_utf8(one, to);
    else
      one = bytes.substr(at, each.length);
    mapped.append(one, text.has_input() ? text.origin(at) : kFromTemplate, meter);
    after_letter = is_cased_lower(each.code_point) || is_cased_upper(each.code_point);
    return true;
  });
  return mapped;
}

Spans split_at_space(std::string_view text, std::int64_t max_splits, Meter& meter) {
  Spans parts;
  const auto is_other = [](const Character& each, std::size_t) { return !is_space(each.code_point); };
  const auto is_white = [](const Character& each, std::size_t) { return is_space(each.code_point); };
  std::size_t begin = visit_characters(text, meter, 0, is_white);
  while (begin < text.size()) {
    if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
      parts.push_back({begin, text.size()});
      break;
    }
    const std::size_t end = visit_characters(text, meter, begin, is_other);
    parts.push_back({begin, end});
    begin = visit_characters(text, meter, end, is_white);
  }
  return parts;
}

Spans split_at_space_from_right(std::string_view text, std::int64_t max_splits, Meter& meter) {
  Spans parts;
  const auto is_other = [](const Character& each, std::size_t) { return !is_space(each.code_point); };
  const auto is_white = [](const Character& each, std::size_t) { return is_space(each.code_point); };
  std::size_t end = visit_characters_back(text, meter, text.size(), is_white);
  while (end > 0) {
    if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
      parts.push_back({0, end});
      break;
    }
    const std::size_t begin = visit_characters_back(text, meter, end, is_other);
    parts.push_back({begin, end});
    end = visit_characters_back(text, meter, begin, is_white);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// The longest text that is searched for by the C library, whose search looks at it anew for each piece.
constexpr std::size_t kMaxShortNeedle = 4096;

// Finds a text of any size by the sums of its bytes' powers (Karp and Rabin, 1987): sums that are equal are compared.
// at(i): byte i of the text, wanted(i): of what is looked for, each in the direction of the search; is_here(i):
// compares.
template <class At, class Wanted, class IsHere>
std::size_t find_by_sums(std::size_t size, std::size_t wanted_size, Meter& meter, At at, Wanted wanted,
                         IsHere is_here) {
  constexpr std::uint64_t kBase = 0x100000001B3;
  constexpr std::size_t kRun = 64;
  if (wanted_size > size) return std::string_view::npos;
  std::uint64_t sum = 0, sought = 0, highest = 1;
  for (std::size_t i = 0; i < wanted_size; ++i) {
    if (i % kRun == 0) meter.work(4);
    sum = sum * kBase + at(i) + 1;
    sought = sought * kBase + wanted(i) + 1;
    if (i > 0) highest *= kBase;
  }
  for (std::size_t begin = 0;; ++begin) {
    if (begin % kRun == 0) meter.work(4);
    if (sum == sought && is_here(begin)) return begin;
    if (begin + wanted_size == size) return std::string_view::npos;
    sum = (sum - (at(begin) + 1) * highest) * kBase + at(begin + wanted_size) + 1;
  }
}

std::uint64_t byte_of(std::string_view text, std::size_t place) { return static_cast<unsigned char>(text[place]); }

}  // namespace

std::size_t count_characters(std::string_view text, Meter& meter) {
  std::size_t count = 0;
  visit_characters(text, meter, 0, [&](const Character&, std::size_t) {
    ++count;
    return true;
  });
  return count;
}

std::size_t character_place(std::string_view text, std::size_t index, Meter& meter) {
  return visit_characters(text, meter, 0, [&](const Character&, std::size_t) { return index-- > 0; });
}

Text every_character(const Text& text, std::int64_t num_characters, std::int64_t start, std::int64_t stop,
                     std::int64_t step, Meter& meter) {
  Text part;
  if (step > 0 ? start >= stop : start <= stop) return part;
  // The number of the character that is looked at, and of the next that is wanted.
  std::int64_t number = step > 0 ? 0 : num_characters - 1, next = start;
  const auto visit = [&](const Character& each, std::size_t at) {
    if (number == next) {
      part.append(text, at, at + each.length, meter);
      next += step;
    }
    number += step > 0 ? 1 : -1;
    return step > 0 ? next < stop : next > stop;
  };
  if (step > 0)
    visit_characters(text.bytes(), meter, 0, visit);
  else
    visit_characters_back(text.bytes(), meter, text.size(), visit);
  return part;
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

bool same_bytes(std::string_view a, std::string_view b, Meter& meter) {
  return a.size() == b.size() && begins_with(a, b, meter);
}

bool comes_before(std::string_view a, std::string_view b, Meter& meter) {
  while (true) {
    const std::string_view left = a.substr(0, Meter::kBytesPerPiece), right = b.substr(0, Meter::kBytesPerPiece);
    meter.touch(std::min(left.size(), right.size()));
    if (left != right || left.empty()) return left < right;
    a.remove_prefix(left.size());
    b.remove_prefix(right.size());
  }
}

bool begins_with(std::string_view text, std::string_view wanted, Meter& meter) {
  if (wanted.size() > text.size()) return false;
  for (std::size_t at = 0; at < wanted.size(); at += Meter::kBytesPerPiece) {
    const std::string_view piece = wanted.substr(at, Meter::kBytesPerPiece);
    meter.touch(piece.size());
    if (text.compare(at, piece.size(), piece) != 0) return false;
  }
  return true;
}

bool ends_with(std::string_view text, std::string_view wanted, Meter& meter) {
  return wanted.size() <= text.size() && begins_with(text.substr(text.size() - wanted.size()), wanted, meter);
}

std::size_t find_bytes(std::string_view text, std::string_view wanted, Meter& meter, std::size_t begin) {
  if (begin > text.size()) return std::string_view::npos;
  if (wanted.empty()) return begin;
  if (wanted.size() > kMaxShortNeedle) {
    const std::string_view rest = text.substr(begin);
    const std::size_t found = find_by_sums(
        rest.size(), wanted.size(), meter, [&](std::size_t i) { return byte_of(rest, i); },
        [&](std::size_t i) { return byte_of(wanted, i); },
        [&](std::size_t i) { return begins_with(rest.substr(i), wanted, meter); });
    return found == std::string_view::npos ? found : begin + found;
  }
  // memmem is linear, unlike std::string::find(). Each piece ends so far behind the next one's begin that none is
  // missed.
  for (std::size_t at = begin; at + wanted.size() <= text.size(); at += Meter::kBytesPerPiece) {
    const std::string_view piece = text.substr(at, Meter::kBytesPerPiece + wanted.size() - 1);
    const void* const found = memmem(piece.data(), piece.size(), wanted.data(), wanted.size());
    const std::size_t place =
        found != nullptr ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) : text.size();
    meter.touch(std::min(piece.size(), place - at) + wanted.size());
    if (found != nullptr) return place;
  }
  return std::string_view::npos;
}

std::size_t find_last_bytes(std::string_view text, std::string_view wanted, Meter& meter) {
  if (wanted.size() > text.size()) return std::string_view::npos;
  const std::size_t last = text.size() - wanted.size();  // the last place where it may begin
  const std::size_t found = find_by_sums(
      text.size(), wanted.size(), meter, [&](std::size_t i) { return byte_of(text, text.size() - 1 - i); },
      [&](std::size_t i) { return byte_of(wanted, wanted.size() - 1 - i); },
      [&](std::size_t i) { return begins_with(text.substr(last - i), wanted, meter); });
  return found == std::string_view::npos ? found : last - found;
}

Span strip(std::string_view text, Side side, Meter& meter, const std::string_view* characters) {
  const CharacterSet set(characters != nullptr ? *characters : std::string_view(), meter);
  const auto is_removed = [&](const Character& each, std::size_t) {
    return characters != nullptr ? set.contains(each.code_point) : is_space(each.code_point);
  };
  const std::size_t begin = side == Side::right ? 0 : visit_characters(text, meter, 0, is_removed);
  const std::string_view rest = text.substr(begin);
  const std::size_t size =
      side == Side::left ? rest.size() : visit_characters_back(rest, meter, rest.size(), is_removed);
  return {begin, begin + size};
}

Spans split(std::string_view text, const std::string_view* separator, std::int64_t max_splits, Meter& meter) {
  if (separator == nullptr) return split_at_space(text, max_splits, meter);
  Spans parts;
  std::size_t begin = 0;
  while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
    const std::size_t found = find_bytes(text, *separator, meter, begin);
    if (found == std::string::npos) break;
    parts.push_back({begin, found});
    begin = found + separator->size();
  }
  parts.push_back({begin, text.size()});
  return parts;
}

Spans split_from_right(std::string_view text, const std::string_view* separator, std::int64_t max_splits,
                       Meter& meter) {
  if (separator == nullptr) return split_at_space_from_right(text, max_splits, meter);
  Spans parts;
  std::size_t end = text.size();
  while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
    const std::size_t found = find_last_bytes(text.substr(0, end), *separator, meter);
    if (found == std::string::npos) break;
    parts.push_back({found + separator->size(), end});
    end = found;
  }
  parts.push_back({0, end});
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Spans split_lines(std::string_view text, bool keep_ends, Meter& meter) {
  Spans lines;
  std::size_t begin = 0;
  visit_characters(text, meter, 0, [&](const Character& each, std::size_t at) {
    if (!is_line_end(each.code_point)) return true;
    const std::size_t next = at + each.length;
    if (each.code_point == '\r' && next < text.size() && text[next] == '\n') return true;  // the newline ends it
    const bool is_pair = each.code_point == '\n' && at > begin && text[at - 1] == '\r';
    lines.push_back({begin, keep_ends ? next : at - (is_pair ? 1 : 0)});
    begin = next;
    return true;
  });
  if (begin < text.size()) lines.push_back({begin, text.size()});
  return lines;
}

std::size_t count_occurrences(std::string_view text, std::string_view wanted, Meter& meter) {
  if (wanted.empty()) return count_characters(text, meter) + 1;
  std::size_t count = 0;
  for (std::size_t at = find_bytes(text, wanted, meter); at != std::string_view::npos;
       at = find_bytes(text, wanted, meter, at + wanted.size()))
    ++count;
  return count;
}

Text replace(const Text& text, std::string_view from, const Text& to, std::int64_t max_count, Meter& meter) {
  Text replaced;
  std::size_t begin = 0;
  std::int64_t count = 0;
  const auto may_replace = [&] { return max_count < 0 || count++ < max_count; };
  if (from.empty()) {
    visit_characters(text.bytes(), meter, 0, [&](const Character& each, std::size_t at) {
      if (may_replace()) replaced.append(to, meter);
      replaced.append(text, at, at + each.length, meter);
      return true;
    });
    if (may_replace()) replaced.append(to, meter);
    return replaced;
  }
  while (may_replace()) {
    const std::size_t found = find_bytes(text.bytes(), from, meter, begin);
    if (found == std::string::npos) break;
    replaced.append(text, begin, found, meter);
    replaced.append(to, meter);
    begin = found + from.size();
  }
  replaced.append(text, begin, text.size(), meter);
  return replaced;
}

Text change_case(const Text& text, Case to, Meter& meter) {
  bool is_first = true;
  return map_characters(text, meter, [&](char32_t c, bool after_letter) -> char32_t {
    const bool was_first = std::exchange(is_first, false);
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

Text title_words(const Text& text, Meter& meter) {
  bool begins_word = true;
  return map_characters(text, meter, [&](char32_t c, bool) -> char32_t {
    const bool is_border = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    const char32_t to = begins_word ? upper_of(c) : lower_of(c);
    begins_word = is_border;
    return to;
  });
}

namespace {

// Whether a character is `wanted`, and none is `other`.
bool has_case(std::string_view text, Meter& meter, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  return visit_characters(text, meter, 0,
                          [&](const Character& each, std::size_t) {
                            any = any || wanted(each.code_point);
                            return !other(each.code_point);
                          }) == text.size() &&
         any;
}

}  // namespace

bool is_lower(std::string_view text, Meter& meter) { return has_case(text, meter, is_cased_lower, is_cased_upper); }
bool is_upper(std::string_view text, Meter& meter) { return has_case(text, meter, is_cased_upper, is_cased_lower); }

std::size_t count_words(std::string_view text, Meter& meter) {
  std::size_t count = 0;
  bool is_within = false;
  visit_characters(text, meter, 0, [&](const Character& each, std::size_t) {
    const auto category = category_of(each.code_point);
    const bool is_word = each.code_point == U'_' || is_alphabetic(each.code_point) ||
                         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    if (is_word && !is_within) ++count;
    is_within = is_word;
    return true;
  });
  return count;
}

bool all_characters(std::string_view text, bool (*is)(char32_t), Meter& meter) {
  return !text.empty() && visit_characters(text, meter, 0, [&](const Character& each, std::size_t) {
                            return is(each.code_point);
                          }) == text.size();
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
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
