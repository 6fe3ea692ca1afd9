// Matrix products of ternary weights in Layout::trits with int8 activations in vectors of 64 bytes, for avx512 and
// avx512vnni: the same integer sums as from the 2-bit layout, from fewer bytes.
//
// Two lines of words hold ten quads of digits: one multiplication removes the digits before a pair, another gives the
// pair as a number, the numbers of both lines are joined to bytes, and two table lookups give the digits. 3.2
// instructions per line of digits against 1.75 for two-bit codes, but one row reads a quarter less.
//
// For a few rows digits are multiplied in registers as they are unpacked. For more, blocks are unpacked like those of
// all other types.
//
// `Dot` has, besides the members for matmul_int8_512.h:
//   add_line(sum, line, quad)  `sum` plus the products of a line of digits; all 64 of a unit fit one sum
//   to_int32(sum)              the sum as int32
#pragma once

#include <immintrin.h>

#include "kernels/matmul/matmul_int8_512.h"

namespace troupe::kernels::int8_512 {
namespace {

constexpr int kMaxFewRows = 4;

// Calls use(first, i, digits) for quads first + i of a unit, ascending; i is a constant, 0 to 9.
template <class Use>
inline void for_each_quad(const std::uint8_t* unit, const Use& use) {
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
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    out.first = out.lines;
    _mm512_store_ps(out.d[0], load_halves(panel));
    for_each_quad(bytes(panel) + kLine + block * kTritsUnit, [&](std::size_t first, std::size_t i, __m512i digits) {
      _mm512_store_si512(out.lines + (first + i) * kLine, digits);
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

// One panel, for R rows.
template <class Dot, int R>
TROUPE_UNCHECKED void multiply_few(const MatrixView& matrix, std::size_t panel, const std::byte* a, float* out,
                                   std::size_t out_stride) {
  constexpr int kChains = Dot::template kChains<R>;
  const Group256Row row = group256_row(matrix.k);
  const std::byte* weights = matrix.body + panel * trits_panel_bytes(matrix.k);
  const __m512 d = load_halves(weights);
  __m512 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  for (std::size_t g = 0; g * 256 < matrix.k; ++g) {
    const std::byte* unit = weights + kLine + g * kTritsUnit;
    __m512i chains[R][kChains];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < kChains; ++c) chains[r][c] = _mm512_setzero_si512();
    const std::byte* codes = a + 256 * g;
    for_each_quad(bytes(unit), [&](std::size_t first, std::size_t i, __m512i digits) {
      if (i % 5 == 0) fetch_line_ahead(unit, (first + i) / 5);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        __m512i& chain = chains[r][i % kChains];
        chain = Dot::add_line(chain, digits, _mm512_set1_epi32(int_at(codes + r * row.bytes + 4 * (first + i))));
      }
    });
    for (int r = 0; r < R; ++r) {
      const std::byte* of_row = a + r * row.bytes + 4 * g;
      __m512i total = _mm512_set1_epi32(int_at(of_row + row.start));
      for (int c = 0; c < kChains; ++c) total = _mm512_add_epi32(total, Dot::to_int32(chains[r][c]));
      const __m512 da = _mm512_mul_ps(d, _mm512_set1_ps(float_at(of_row + row.scale)));
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), da, sums[r]);
    }
  }
  const std::size_t n = panel * kPanelRows, width = matrix.rows - n;
  const auto mask = static_cast<__mmask16>(width >= 16 ? 0xffff : (1u << width) - 1);
  for (int r = 0; r < R; ++r)
    _mm512_mask_storeu_ps(out + r * out_stride + n, mask, _mm512_mul_ps(sums[r], _mm512_set1_ps(matrix.scale)));
}

template <class Dot, int R = kMaxFewRows>
void multiply_trits(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                    std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  if constexpr (R > 0) {
    if (num_rows != R)
      return multiply_trits<Dot, R - 1>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
    for (std::size_t panel = panel_begin; panel < panel_end; ++panel)
      multiply_few<Dot, R>(matrix, panel, prepared, out, out_stride);
  } else {
    multiply<Dot, Trits>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
  }
}

}  // namespace
}  // namespace troupe::kernels::int8_512
