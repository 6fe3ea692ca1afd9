// Matrix products of quantized weights with int8 activations on AVX-512 without VNNI.
//
// As on AVX2, `vpmaddubsw` adds neighbours in int16, saturating: codes of up to 6 bits leave room to add several such
// results before `vpmaddwd` widens them to int32; 8-bit codes are made signed, multiplied as |w| * (sign(w) * a), and
// each result is widened. There is no `vpsignb` of 64 bytes: a subtraction under the mask of the negative codes
// replaces it.
#include <immintrin.h>

#include "kernels/matmul/matmul_int8_512.h"
#include "kernels/matmul/matmul_trits_512.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512 {
namespace {

using namespace int8_512;

struct Dot {
  static constexpr int kStepQuads = 32;
  static constexpr bool kAnyByte = false;
  template <int n>
  static constexpr int kChains = 1;  // one is enough: an addition takes one cycle

  template <class Type, int kQuads, int P, int R>
  [[gnu::always_inline]] TROUPE_UNCHECKED static inline void multiply_quads(const Block* blocks, std::size_t line,
                                                                            const std::byte* codes, std::size_t stride,
                                                                            __m512i (&sums)[P][R][1]) {
    const __m512i zero = _mm512_setzero_si512(), ones = _mm512_set1_epi16(1), high_bit = _mm512_set1_epi8(-128);
    for (int part = 0; part < kQuads; part += Type::kNarrowQuads) {
      __m512i narrow[P][R];
      for (int p = 0; p < P; ++p)
        for (int r = 0; r < R; ++r) narrow[p][r] = zero;
#pragma GCC unroll 2  // as in matmul_int8_avx2.cpp
      for (int q = 0; q < Type::kNarrowQuads; ++q, line += kLine, codes += 4) {
        __m512i w[P];
        __mmask64 negative[P];
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) {
          w[p] = load_line(blocks[p].first + line);
          if constexpr (Type::kWide) {
            const __m512i code = _mm512_xor_si512(w[p], high_bit);
            negative[p] = _mm512_movepi8_mask(code);
            w[p] = _mm512_abs_epi8(code);
          }
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const __m512i quad = _mm512_set1_epi32(int_at(codes + r * stride));
#pragma GCC unroll 2
          for (int p = 0; p < P; ++p)
            if constexpr (Type::kWide)
              narrow[p][r] = _mm512_maddubs_epi16(w[p], _mm512_mask_sub_epi8(quad, negative[p], zero, quad));
            else
              narrow[p][r] = _mm512_add_epi16(narrow[p][r], _mm512_maddubs_epi16(w[p], quad));
        }
      }
      for (int p = 0; p < P; ++p)
        for (int r = 0; r < R; ++r)
          sums[p][r][0] = _mm512_add_epi32(sums[p][r][0], _mm512_madd_epi16(narrow[p][r], ones));
    }
  }

  template <class Type>
  struct Sum {
    void add(int q, __m512i line, __m512i quad) {
      constexpr int kQuads = Type::kNarrowQuads < 4 ? Type::kNarrowQuads : 4;  // that add up in int16
      if constexpr (Type::kWide) {
        const __m512i code = _mm512_xor_si512(line, _mm512_set1_epi8(-128));
        quad = _mm512_mask_sub_epi8(quad, _mm512_movepi8_mask(code), _mm512_setzero_si512(), quad);
        line = _mm512_abs_epi8(code);
      }
      const __m512i products = _mm512_maddubs_epi16(line, quad);
      narrow = q % kQuads == 0 ? products : _mm512_add_epi16(narrow, products);
      if (q % kQuads == kQuads - 1) sum = _mm512_add_epi32(sum, to_int32(narrow));
    }
    __m512i total() const { return sum; }
    __m512i sum = _mm512_setzero_si512(), narrow = _mm512_setzero_si512();
  };

  // Cannot overflow: 32 * 6 * 127 fits into int16.
  static __m512i add_line(__m512i sum, __m512i line, __m512i quad) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(line, quad));
  }
  static __m512i to_int32(__m512i sum) { return _mm512_madd_epi16(sum, _mm512_set1_epi16(1)); }
};

}  // namespace

Matmul* matmul_int8(WeightType type) { return matmul_of<Dot>(type); }

void matmul_trits(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                  std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Dot, Trits>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

}  // namespace troupe::kernels::avx512
