// Matrix products of ternary weights in Layout::trits with int8 activations in vectors of 32 bytes, for avx2 and
// avxvnni: as matmul_trits_512.h, half a line at a time.
//
// `Dot` has, besides the members for matmul_int8_256.h:
//   kRowChains                 sums per output for a single row
//   add_line(sum, half, quad)  `sum` plus the products of half a line of digits; all 64 of a unit fit one sum
//   to_int32(sum)              the sum as int32
#pragma once

#include <immintrin.h>

#include "kernels/matmul/matmul_int8_256.h"

namespace troupe::kernels::int8_256 {
namespace {

// Calls use(first, i, digits) for quads first + i of half a unit, ascending; i is a constant, 0 to 9.
template <class Use>
inline void for_each_quad(const std::uint8_t* unit, const Use& use) {
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
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    out.run[0] = out.lines;
    unpack_halves(panel, out.d[0]);
    for (std::size_t at = 0; at < kLine; at += kHalf)
      for_each_quad(bytes(panel) + kLine + block * kTritsUnit + at,
                    [&](std::size_t first, std::size_t i, __m256i digits) {
                      store_half_line(out.lines + (first + i) * kLine + at, digits);
                    });
  }
};

// Lines are prefetched one by one, between uses of other lines, and further ahead than for other types, because here
// two threads are limited by memory only. 4 KiB ahead instead of 2, and one by one instead of per unit, each save some
// 5 % of a row's time.
inline void fetch_line_ahead(const std::byte* unit, std::size_t line) {
  constexpr std::size_t kAhead = 4096;
  _mm_prefetch(reinterpret_cast<const char*>(unit + kAhead + line * kLine), _MM_HINT_T0);
}

// One panel, for one row: digits are multiplied as they are unpacked.
template <class Dot>
void multiply_one(const MatrixView& matrix, std::size_t panel, const std::byte* a, float* out) {
  const Group256Row row = group256_row(matrix.k);
  const std::byte* weights = matrix.body + panel * trits_panel_bytes(matrix.k);
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (std::size_t g = 0; g * 256 < matrix.k; ++g) {
    const std::byte* unit = weights + kLine + g * kTritsUnit;
    const __m256 da = broadcast_float(a + row.scale + 4 * g);
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i chains[Dot::kRowChains];
      for (__m256i& chain : chains) chain = _mm256_setzero_si256();
      for_each_quad(bytes(unit) + half * kHalf, [&](std::size_t first, std::size_t i, __m256i digits) {
        if (half == 0 && i % 5 == 0) fetch_line_ahead(unit, (first + i) / 5);
        __m256i& chain = chains[i % Dot::kRowChains];
        chain = Dot::add_line(chain, digits, broadcast_int(a + 256 * g + 4 * (first + i)));
      });
      __m256i total = broadcast_int(a + row.start + 4 * g);
      for (const __m256i chain : chains) total = _mm256_add_epi32(total, Dot::to_int32(chain));
      const __m256 d = halves_to_floats(weights + 16 * half);
      sums[half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), _mm256_mul_ps(d, da), sums[half]);
    }
  }
  alignas(32) float values[kPanelRows];
  _mm256_store_ps(values, sums[0]);
  _mm256_store_ps(values + 8, sums[1]);
  const std::size_t begin = panel * kPanelRows;
  const std::size_t width = matrix.rows - begin < kPanelRows ? matrix.rows - begin : kPanelRows;
  for (std::size_t n = 0; n < width; ++n) out[begin + n] = values[n] * matrix.scale;
}

template <class Dot>
void multiply_trits(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                    std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  if (num_rows != 1) return multiply<Dot, Trits>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
  for (std::size_t panel = panel_begin; panel < panel_end; ++panel) multiply_one<Dot>(matrix, panel, prepared, out);
}

}  // namespace
}  // namespace troupe::kernels::int8_256
