// Matrix products of ternary weights in Layout::trits with int8 activations in vectors of 32 bytes, for avx2 and
// avxvnni: as matmul_trits_512.h, half a line at a time.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/matmul_int8_256.h"

namespace troupe::kernels::int8_256 {
namespace {

// Calls use(first, i, digits) for quads first + i of half a unit, ascending; i is a constant, 0 to 9.
template <class Use>
inline void for_each_trits_quad(const std::uint8_t* unit, const Use& use) {
  const __m256i nine = _mm256_set1_epi16(9), mask = _mm256_set1_epi8(15);
  const __m256i first_digit =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0));
  const __m256i second_digit =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0));
  const auto use_two = [&](std::size_t first, std::size_t i, __m256i both) {
    use(first, i, _mm256_shuffle_epi8(first_digit, both));
    use(first, i + 1, _mm256_shuffle_epi8(second_digit, both));
  };
  std::size_t first = 0;
  for (; first < kTritsPairs * kTritsQuads; first += kTritsQuads, unit += 2 * kLine) {
    const __m256i a = load_half_line(unit), b = load_half_line(unit + kLine);
    const auto two_of = [&](std::size_t i, __m256i rest_a, __m256i rest_b) {
      use_two(first, i, _mm256_packus_epi16(_mm256_mulhi_epu16(rest_a, nine), _mm256_mulhi_epu16(rest_b, nine)));
    };
    const auto two_behind = [&](std::size_t i, short power) {  // power of 3 that removes i digits
      __m256i by = _mm256_set1_epi16(power);
      __asm__("" : "+x"(by));  // else GCC replaces a product with 81 by four shifts and additions
      two_of(i, _mm256_mullo_epi16(a, by), _mm256_mullo_epi16(b, by));
    };
    two_of(0, a, b);
    two_behind(2, 9);
    two_behind(4, 81);
    two_behind(6, 729);
    two_behind(8, 6561);
  }
  const __m256i nibbles = load_half_line(unit);
  use_two(first, 0, _mm256_and_si256(nibbles, mask));
  use_two(first, 2, _mm256_and_si256(_mm256_srli_epi16(nibbles, 4), mask));
}

struct Trits {
  static constexpr std::size_t kBlockBytes = kTritsUnit;
  static constexpr int kRunQuads = 64, kNarrowQuads = 32, kStartShift = 0;
  static constexpr bool kWide = false, kHasMin = false, kRow256 = true;
  static std::size_t panel_bytes(std::size_t k) { return trits_panel_bytes(k); }
  static const std::byte* lines(const std::byte* panel, std::size_t block) {
    return panel + kLine + block * kTritsUnit;
  }
  static __m256 d(const std::byte* panel, std::size_t, std::size_t half) { return halves_to_floats(panel + 16 * half); }
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::byte* lines, const Use& use) {
    for_each_trits_quad(bytes(lines), use);
  }
};

}  // namespace
}  // namespace troupe::kernels::int8_256
