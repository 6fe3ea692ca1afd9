// Matrix products of ternary weights in Layout::trits with int8 activations in vectors of 64 bytes, for avx512 and
// avx512vnni: the same integer sums as from the 2-bit layout, from fewer bytes.
//
// Two lines of words hold ten quads of digits: one multiplication removes the digits before a pair, another gives the
// pair as a number, the numbers of both lines are joined to bytes, and two table lookups give the digits. 3.2
// instructions per line of digits against 1.75 for two-bit codes, but one row reads a quarter less.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/matmul_int8_512.h"

namespace troupe::kernels::int8_512 {
namespace {

// Calls use(first, i, digits) for quads first + i of a unit, ascending; i is a constant, 0 to 9.
template <class Use>
inline void for_each_trits_quad(const std::uint8_t* unit, const Use& use) {
  const __m512i nine = _mm512_set1_epi16(9), mask = _mm512_set1_epi8(15);
  const __m512i first_digit = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0));
  const __m512i second_digit = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0));
  const auto use_two = [&](std::size_t first, std::size_t i, __m512i both) {
    use(first, i, _mm512_shuffle_epi8(first_digit, both));
    use(first, i + 1, _mm512_shuffle_epi8(second_digit, both));
  };
  std::size_t first = 0;
  for (; first < kTritsPairs * kTritsQuads; first += kTritsQuads, unit += 2 * kLine) {
    const __m512i a = load_line(unit), b = load_line(unit + kLine);
    const auto two_of = [&](std::size_t i, __m512i rest_a, __m512i rest_b) {
      use_two(first, i, _mm512_packus_epi16(_mm512_mulhi_epu16(rest_a, nine), _mm512_mulhi_epu16(rest_b, nine)));
    };
    const auto two_behind = [&](std::size_t i, short power) {  // power of 3 that removes i digits
      __m512i by = _mm512_set1_epi16(power);
      __asm__("" : "+v"(by));  // else GCC replaces a product with 81 by four shifts and additions
      two_of(i, _mm512_mullo_epi16(a, by), _mm512_mullo_epi16(b, by));
    };
    two_of(0, a, b);
    two_behind(2, 9);
    two_behind(4, 81);
    two_behind(6, 729);
    two_behind(8, 6561);
  }
  const __m512i nibbles = load_line(unit);
  use_two(first, 0, _mm512_and_si512(nibbles, mask));
  use_two(first, 2, _mm512_and_si512(_mm512_srli_epi16(nibbles, 4), mask));
}

struct Trits {
  static constexpr std::size_t kBlockBytes = kTritsUnit;
  static constexpr int kRunQuads = 64, kNarrowQuads = 32, kStartShift = 0;
  static constexpr bool kWide = false, kHasMin = false, kRow256 = true;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return trits_panel_bytes(k); }
  static const std::byte* lines(const std::byte* panel, std::size_t block) {
    return panel + kLine + block * kTritsUnit;
  }
  static __m512 d(const std::byte* panel, std::size_t) { return load_halves(panel); }
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::byte* lines, const Use& use) {
    for_each_trits_quad(bytes(lines), use);
  }
};

}  // namespace
}  // namespace troupe::kernels::int8_512
