#include "engine/constraints/expressions/characters.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "config/assert.h"
#include "config/utf8.h"

namespace troupe::engine::constraints {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

// Ranges of bytes, one after another: the UTF-8 forms of a run of characters.
struct ByteSequence {
  std::size_t length = 0;
  std::array<std::pair<std::uint8_t, std::uint8_t>, 4> ranges{};
};

std::size_t utf8_length(char32_t code_point) {
  if (code_point < 0x80) return 1;
  if (code_point < 0x800) return 2;
  return code_point < 0x10000 ? 3 : 4;
}

std::array<std::uint8_t, 4> utf8_bytes(char32_t code_point, std::size_t length) {
  constexpr std::array<std::uint8_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
  std::array<std::uint8_t, 4> bytes{};
  for (std::size_t at = length; at-- > 1;) {
    bytes[at] = static_cast<std::uint8_t>(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  bytes[0] = static_cast<std::uint8_t>(kLead[length] | code_point);
  return bytes;
}

// Appends the sequences of [first, last], ascending: pieces in which all bytes vary independently.
void append_sequences(std::vector<ByteSequence>& out, char32_t first, char32_t last) {
  while (first <= last) {
    const std::size_t length = utf8_length(first);
    constexpr std::array<char32_t, 5> kLastOfLength = {0, 0x7F, 0x7FF, 0xFFFF, kLastCodePoint};
    char32_t end = std::min(last, kLastOfLength[length]);
    // The lowest bits must run from 0 to their maximum wherever a byte before them varies.
    for (std::size_t low_bytes = 1; low_bytes < length; ++low_bytes) {
      const char32_t mask = (char32_t{1} << (6 * low_bytes)) - 1;
      if ((first & ~mask) == (end & ~mask)) break;
      if ((first & mask) != 0) {
        end = first | mask;
        break;
      }
      if ((end & mask) != mask) end = (end & ~mask) - 1;
    }
    const auto low = utf8_bytes(first, length), high = utf8_bytes(end, length);
    ByteSequence sequence{.length = length};
    for (std::size_t at = 0; at < length; ++at) sequence.ranges[at] = {low[at], high[at]};
    out.push_back(sequence);
    first = end + 1;
  }
}

// One of the sequences from their byte `at` on. They ascend, and first bytes are the same or disjoint, so that no two
// branches of the result begin with the same byte.
RegexId byte_trie(RegexPool& pool, std::span<const ByteSequence> sequences, std::size_t at) {
  std::map<RegexId, ByteSet> first_bytes;  // by what follows them
  for (std::size_t begin = 0, end; begin < sequences.size(); begin = end) {
    const auto range = sequences[begin].ranges[at];
    for (end = begin + 1; end < sequences.size() && sequences[end].ranges[at] == range; ++end) {
    }
    const bool is_last = sequences[begin].length == at + 1;
    const RegexId rest = is_last ? kEmptyText : byte_trie(pool, sequences.subspan(begin, end - begin), at + 1);
    ByteSet& set = first_bytes[rest];
    set = set | ByteSet::range(range.first, range.second);
  }
  std::vector<RegexId> branches;
  for (const auto& [rest, set] : first_bytes) branches.push_back(pool.concat(pool.bytes(set), rest));
  return pool.either(std::move(branches));
}

RegexId plain_character(RegexPool& pool, const CodePoints& set) {
  std::vector<ByteSequence> sequences;
  for (const auto& [first, last] : set.ranges()) append_sequences(sequences, first, last);
  return byte_trie(pool, sequences, 0);
}

// The letter behind the backslash of a short escape; 0 for characters that have none.
constexpr char short_escape(char32_t code_point) {
  switch (code_point) {
    case '"':
    case '\\':
      return static_cast<char>(code_point);
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

constexpr char kHexDigits[] = "0123456789abcdef";

const CodePoints& json_escaped() {
  static const CodePoints set = [] {
    CodePoints escaped = CodePoints::of(0, 0x1F);
    escaped.add('"', '"');
    escaped.add('\\', '\\');
    return escaped;
  }();
  return set;
}

RegexId json_character(RegexPool& pool, const CodePoints& set) {
  ByteSet letters;
  std::array<ByteSet, 2> low_digits;  // of \u000x and \u001x
  const CodePoints escaped = set.intersection(json_escaped());
  for (const auto& [first, last] : escaped.ranges())
    for (char32_t each = first; each <= last; ++each) {
      if (const char letter = short_escape(each))
        letters.add(static_cast<std::uint8_t>(letter));
      else
        low_digits[each / 16].add(static_cast<std::uint8_t>(kHexDigits[each % 16]));
    }
  const auto escape = [&](std::string_view before, const ByteSet& last) {
    return pool.concat(pool.literal(before), pool.bytes(last));
  };
  return pool.either({plain_character(pool, set.intersection(json_escaped().complement())), escape("\\", letters),
                      escape("\\u000", low_digits[0]), escape("\\u001", low_digits[1])});
}

}  // namespace

CodePoints CodePoints::of(char32_t first, char32_t last) {
  CodePoints set;
  set.add(first, last);
  return set;
}

CodePoints CodePoints::all() { return of(0, kLastCodePoint); }

void CodePoints::add(char32_t first, char32_t last) {
  last = std::min(last, kLastCodePoint);
  if (first > last) return;
  if (first <= kLastSurrogate && last >= kFirstSurrogate) {
    if (first < kFirstSurrogate) add(first, kFirstSurrogate - 1);
    if (last > kLastSurrogate) add(kLastSurrogate + 1, last);
    return;
  }
  // Those that overlap or touch the new range become part of it.
  const auto begin =
      std::find_if(ranges_.rbegin(), ranges_.rend(), [&](const auto& each) { return each.second + 1 < first; }).base();
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) ++end;
  if (begin != end) {
    first = std::min(first, begin->first);
    last = std::max(last, std::prev(end)->second);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void CodePoints::add(const CodePoints& other) {
  if (&other == this) return;
  // In ascending order, so that each is added at the end.
  std::vector<std::pair<char32_t, char32_t>> both;
  std::ranges::merge(ranges_, other.ranges_, std::back_inserter(both));
  ranges_.clear();
  for (const auto& [first, last] : both) add(first, last);
}

CodePoints CodePoints::complement() const {
  CodePoints result;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) result.add(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCodePoint) result.add(next, kLastCodePoint);
  return result;
}

CodePoints CodePoints::intersection(const CodePoints& other) const {
  CodePoints result;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first), last = std::min(a->second, b->second);
    if (first <= last) result.add(first, last);
    (a->second < b->second) ? ++a : ++b;
  }
  return result;
}

bool CodePoints::contains(char32_t code_point) const {
  const auto after = std::ranges::upper_bound(ranges_, code_point, {}, [](const auto& range) { return range.first; });
  return after != ranges_.begin() && std::prev(after)->second >= code_point;
}

RegexId character(RegexPool& pool, const CodePoints& set, Writing writing) {
  return writing == Writing::plain ? plain_character(pool, set) : json_character(pool, set);
}

std::string written(std::string_view text, Writing writing) {
  TROUPE_ASSERT(is_utf8(text));
  if (writing == Writing::plain) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (const char letter = short_escape(byte)) {
      out += '\\';
      out += letter;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHexDigits[byte / 16];
      out += kHexDigits[byte % 16];
    } else {
      out += each;
    }
  }
  return out;
}

RegexId any_json_character(RegexPool& pool) {
  const auto set = [&](std::string_view members) {
    ByteSet bytes;
    for (const char each : members) bytes.add(static_cast<std::uint8_t>(each));
    return pool.bytes(bytes);
  };
  const RegexId hex = set("0123456789abcdefABCDEF"), d = set("dD");
  // From \u0000 to \uffff without \ud800 to \udfff, and \ud800 to \udbff before \udc00 to \udfff.
  const RegexId alone = pool.either({pool.concat(std::array{set("0123456789abcefABCEF"), hex, hex, hex}),
                                     pool.concat(std::array{d, set("01234567"), hex, hex})});
  const RegexId pair =
      pool.concat(std::array{d, set("89abAB"), hex, hex, pool.literal("\\u"), d, set("cdefCDEF"), hex, hex});
  const RegexId escape = pool.either({set("\"\\/bfnrt"), pool.concat(set("u"), pool.either({alone, pair}))});
  return pool.either({plain_character(pool, json_escaped().complement()), pool.concat(set("\\"), escape)});
}

}  // namespace troupe::engine::constraints
