// Matrix products of quantized weights with int8 activations on AVX-512-VNNI: `vpdpbusd` multiplies any unsigned byte
// with any signed one and adds four products in int32.
#include <immintrin.h>

#include "kernels/matmul/matmul_int8_512.h"
#include "kernels/matmul/matmul_trits_512.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512vnni {
namespace {

using namespace int8_512;

struct Dot {
  static constexpr int kStepQuads = 8;
  static constexpr bool kAnyByte = true;
  // With few rows one chain per output would wait for vpdpbusd's latency (5 cycles, 2 per cycle): integer sums are
  // split into several chains.
  template <int n>
  static constexpr int kChains = n <= 2   ? 4
                                 : n <= 4 ? 2
                                          : 1;

  template <class Type, int kQuads, int P, int R, int kNumChains>
  [[gnu::always_inline]] TROUPE_UNCHECKED static inline void multiply_quads(const Block* blocks, std::size_t line,
                                                                            const std::byte* codes, std::size_t stride,
                                                                            __m512i (&chains)[P][R][kNumChains]) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) {
      __m512i w[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) w[p] = load_line(blocks[p].first + line);
      line += kLine;
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i quad = _mm512_set1_epi32(int_at(codes + r * stride + 4 * q));
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p)
          chains[p][r][q % kNumChains] = _mm512_dpbusd_epi32(chains[p][r][q % kNumChains], w[p], quad);
      }
    }
  }

  // Of the quads of a scale.
  template <class Type>
  struct Sum {
    void add(int, __m512i line, __m512i quad) { sum = _mm512_dpbusd_epi32(sum, line, quad); }
    __m512i total() const { return sum; }
    __m512i sum = _mm512_setzero_si512();
  };

  static __m512i add_line(__m512i sum, __m512i line, __m512i quad) { return _mm512_dpbusd_epi32(sum, line, quad); }
  static __m512i to_int32(__m512i sum) { return sum; }
};

}  // namespace

Matmul* matmul_int8(WeightType type) { return matmul_of<Dot>(type); }

void matmul_trits(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                  std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Dot, Trits>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

}  // namespace troupe::kernels::avx512vnni
