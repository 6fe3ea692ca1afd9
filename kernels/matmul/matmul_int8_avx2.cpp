// Matrix products of quantized weights with int8 activations on AVX2.
//
// AVX2 multiplies unsigned by signed bytes and adds neighbours in int16 (`vpmaddubsw`), saturating. Codes of up to 6
// bits leave room to add several such results before `vpmaddwd` widens them to int32; 8-bit codes are made signed,
// multiplied as |w| * (sign(w) * a), and each result is widened.
#include <immintrin.h>

#include "kernels/matmul/matmul_int8_256.h"
#include "kernels/matmul/matmul_trits_256.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
namespace {

using namespace int8_256;

struct Dot {
  static constexpr int kTileRows = 4;
  static constexpr std::size_t kFewRows = 2, kFewTernaryRows = 12;
  static constexpr int kRowChains = 2;
  static constexpr bool kAnyByte = false;

  template <class Type, int R>
  [[gnu::always_inline]] static inline void multiply_run(const std::uint8_t* run, const std::byte* codes,
                                                         std::size_t stride, __m256i (&sums)[R][2]) {
    const __m256i ones = _mm256_set1_epi16(1), high_bit = _mm256_set1_epi8(-128);
    for (int part = 0; part < Type::kRunQuads; part += Type::kNarrowQuads) {
      __m256i narrow[R][2];
      for (int r = 0; r < R; ++r)
        for (int h = 0; h < 2; ++h) narrow[r][h] = _mm256_setzero_si256();
// Limits unrolling: fully unrolled, GCC 12 reorders the sums and spills, which is 15 % slower.
#pragma GCC unroll 2
      for (int q = 0; q < Type::kNarrowQuads; ++q, run += kLine, codes += 4) {
        const __m256i w[2] = {load_half_line(run), load_half_line(run + kHalf)};
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const __m256i quad = broadcast_int(codes + static_cast<std::size_t>(r) * stride);
#pragma GCC unroll 2
          for (int h = 0; h < 2; ++h) {
            if constexpr (Type::kWide) {
              const __m256i code = _mm256_xor_si256(w[h], high_bit);
              narrow[r][h] = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(quad, code));
            } else {
              narrow[r][h] = _mm256_add_epi16(narrow[r][h], _mm256_maddubs_epi16(w[h], quad));
            }
          }
        }
      }
      for (int r = 0; r < R; ++r)
        for (int h = 0; h < 2; ++h) sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(narrow[r][h], ones));
    }
  }

  template <class Type>
  struct Sum {
    void add(int q, __m256i line, __m256i quad) {
      constexpr int kQuads = Type::kNarrowQuads < 4 ? Type::kNarrowQuads : 4;  // that add up in int16
      if constexpr (Type::kWide) {
        const __m256i code = _mm256_xor_si256(line, _mm256_set1_epi8(-128));
        quad = _mm256_sign_epi8(quad, code);
        line = _mm256_abs_epi8(code);
      }
      const __m256i products = _mm256_maddubs_epi16(line, quad);
      narrow = q % kQuads == 0 ? products : _mm256_add_epi16(narrow, products);
      if (q % kQuads == kQuads - 1) sum = _mm256_add_epi32(sum, to_int32(narrow));
    }
    __m256i total() const { return sum; }
    __m256i sum = _mm256_setzero_si256(), narrow = _mm256_setzero_si256();
  };

  // Cannot overflow: 32 * 6 * 127 fits into int16.
  static __m256i add_line(__m256i sum, __m256i half, __m256i quad) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(half, quad));
  }
  static __m256i to_int32(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};

}  // namespace

Matmul* matmul_int8(WeightType type) { return matmul_of<Dot>(type); }

void matmul_trits(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                  std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Dot, Trits>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

}  // namespace troupe::kernels::avx2
