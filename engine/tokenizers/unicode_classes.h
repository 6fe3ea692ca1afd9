// The class of a character, its lower-case letter, and its letters without accents (Unicode 14).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::engine {

enum class CharClass : std::uint8_t {
  other,
  space,        // \t, \n, \r and the general categories Zs, Zl, Zp
  control,      // the other characters of the general categories C*, unassigned ones, too
  mark,         // Mn: drawn over or under the letter before
  punctuation,  // P*
};

[[nodiscard]] CharClass char_class(char32_t c);

// The lower-case letter; the character itself if that does not exist or is several characters.
[[nodiscard]] char32_t to_lower(char32_t c);

// The characters of the full canonical decomposition that are no marks; empty if all are marks or there is no
// decomposition.
[[nodiscard]] std::span<const char32_t> decomposed_base(char32_t c);

// Calls use(char32_t) for each character of `c`'s canonical decomposition that is no mark; for `c` itself if
// decomposed_base() is empty.
template <class Use>
void for_each_base(char32_t c, Use use) {
  constexpr char32_t kFirst = 0xAC00, kLast = 0xD7A3;  // Hangul syllables are decomposed by arithmetic
  if (c >= kFirst && c <= kLast) {
    const char32_t index = c - kFirst;
    use(0x1100 + index / 588);
    use(0x1161 + index % 588 / 28);
    if (index % 28 != 0) use(0x11A7 + index % 28);
    return;
  }
  const std::span<const char32_t> base = decomposed_base(c);
  if (base.empty()) return use(c);
  for (const char32_t each : base) use(each);
}

}  // namespace troupe::engine
