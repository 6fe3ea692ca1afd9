// Matrix products of quantized weights with int8 activations on AVX-VNNI: `vpdpbusd` multiplies any unsigned byte
// with any signed one and adds four products in int32, in one instruction where AVX2 takes two to four.
#include <immintrin.h>

#include "kernels/matmul/matmul_int8_256.h"
#include "kernels/matmul/matmul_trits_256.h"
#include "kernels/variants.h"

namespace troupe::kernels::avxvnni {
namespace {

using namespace int8_256;

struct Dot {
  static constexpr int kTileRows =
      6;  // 12 sums, which hide the latency, 2 vectors of codes, 1 of activations: 15 of 16
  static constexpr std::size_t kFewRows = 4, kFewTernaryRows = 1;
  static constexpr int kRowChains = 4;
  static constexpr bool kAnyByte = true;

  template <class Type, int R>
  [[gnu::always_inline]] static inline void multiply_run(const std::uint8_t* run, const std::byte* codes,
                                                         std::size_t stride, __m256i (&sums)[R][2]) {
    // With few rows one chain per output would wait for vpdpbusd's latency (5 cycles, 2 per cycle): integer sums are
    // split into several chains.
    constexpr int kChains = R == 1 ? 4 : R == 2 ? 2 : 1;
    constexpr int kStep = Type::kRunQuads < 8 ? Type::kRunQuads : 8;
    __m256i chains[R][2][kChains];
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < 2; ++h) {
        chains[r][h][0] = sums[r][h];
        for (int c = 1; c < kChains; ++c) chains[r][h][c] = _mm256_setzero_si256();
      }
    for (int step = 0; step < Type::kRunQuads; step += kStep) {
#pragma GCC unroll 8
      for (int q = 0; q < kStep; ++q, run += kLine, codes += 4) {
        const __m256i w[2] = {load_half_line(run), load_half_line(run + kHalf)};
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const __m256i quad = broadcast_int(codes + static_cast<std::size_t>(r) * stride);
#pragma GCC unroll 2
          for (int h = 0; h < 2; ++h)
            chains[r][h][q % kChains] = _mm256_dpbusd_avx_epi32(chains[r][h][q % kChains], w[h], quad);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < 2; ++h) {
        sums[r][h] = chains[r][h][0];
        for (int c = 1; c < kChains; ++c) sums[r][h] = _mm256_add_epi32(sums[r][h], chains[r][h][c]);
      }
  }

  template <class Type>
  struct Sum {
    void add(int, __m256i line, __m256i quad) { sum = _mm256_dpbusd_avx_epi32(sum, line, quad); }
    __m256i total() const { return sum; }
    __m256i sum = _mm256_setzero_si256();
  };

  static __m256i add_line(__m256i sum, __m256i half, __m256i quad) { return _mm256_dpbusd_avx_epi32(sum, half, quad); }
  static __m256i to_int32(__m256i sum) { return sum; }
};

}  // namespace

Matmul* matmul_int8(WeightType type) { return matmul_of<Dot>(type); }

void matmul_trits(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                  std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Dot, Trits>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

}  // namespace troupe::kernels::avxvnni
