// Matrix products of F32, F16 and BF16 weights with float32 activations on AVX-512: one fused chain
// per output over ascending k. Two panels by up to 12 rows of chains are in flight.
#include <immintrin.h>

#include "kernels/formats/weight_formats.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512 {
namespace {

using namespace layout;

constexpr int kTileRows = 12;
// With fewer, a single row would wait for the latency of its additions.
constexpr int kSingleRowPanels = 4;

template <class Number>
struct Vectors;
template <>
struct Vectors<GroupF32> {
  static constexpr std::size_t kBytes = 64;  // per k
  static __m512 load(const std::byte* p) { return _mm512_loadu_ps(p); }
};
template <>
struct Vectors<GroupF16> {
  static constexpr std::size_t kBytes = 32;
  static __m512 load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};
template <>
struct Vectors<GroupBF16> {
  static constexpr std::size_t kBytes = 32;
  static __m512 load(const std::byte* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
};

template <class Type, int P, int R>
void multiply_tile(const MatrixView& matrix, std::size_t panel, const std::byte* a, std::size_t stride, float* out,
                   std::size_t out_stride) {
  const std::size_t panel_bytes = round_up(matrix.k * Type::kBytes, kLine);
  const std::byte* weights = matrix.body + panel * panel_bytes;
  __m512 sums[P][R];
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) sums[p][r] = _mm512_setzero_ps();
  for (std::size_t k = 0; k < matrix.k; ++k, weights += Type::kBytes, a += 4) {
    __m512 w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) w[p] = Type::load(weights + static_cast<std::size_t>(p) * panel_bytes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_set1_ps(*reinterpret_cast<const float*>(a + static_cast<std::size_t>(r) * stride));
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sums[p][r] = _mm512_fmadd_ps(w[p], x, sums[p][r]);
    }
  }
  const __m512 scale = _mm512_set1_ps(matrix.scale);
  for (int p = 0; p < P; ++p) {
    const std::size_t n = (panel + static_cast<std::size_t>(p)) * kPanelRows;
    const std::size_t width = matrix.rows - n;
    const auto mask = static_cast<__mmask16>(width >= 16 ? 0xffff : (1u << width) - 1);
    for (int r = 0; r < R; ++r)
      _mm512_mask_storeu_ps(out + static_cast<std::size_t>(r) * out_stride + n, mask, _mm512_mul_ps(sums[p][r], scale));
  }
}

template <class Type, int P>
void multiply_rest(std::size_t rows, const MatrixView& matrix, std::size_t panel, const std::byte* a,
                   std::size_t stride, float* out, std::size_t out_stride) {
  while (rows != 0) {
    std::size_t done;
    if (rows >= 8) {
      multiply_tile<Type, P, 8>(matrix, panel, a, stride, out, out_stride);
      done = 8;
    } else if (rows >= 4) {
      multiply_tile<Type, P, 4>(matrix, panel, a, stride, out, out_stride);
      done = 4;
    } else if (rows >= 2) {
      multiply_tile<Type, P, 2>(matrix, panel, a, stride, out, out_stride);
      done = 2;
    } else {
      multiply_tile<Type, P, 1>(matrix, panel, a, stride, out, out_stride);
      done = 1;
    }
    rows -= done;
    a += done * stride;
    out += done * out_stride;
  }
}

template <class Type, int P>
void multiply_panels(const MatrixView& matrix, std::size_t panel, const std::byte* a, std::size_t stride,
                     std::size_t num_rows, float* out, std::size_t out_stride) {
  for (; num_rows >= kTileRows; num_rows -= kTileRows, a += kTileRows * stride, out += kTileRows * out_stride)
    multiply_tile<Type, P, kTileRows>(matrix, panel, a, stride, out, out_stride);
  multiply_rest<Type, P>(num_rows, matrix, panel, a, stride, out, out_stride);
}

template <class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const std::size_t stride = float_row_bytes(matrix.k);
  // The number of rows that stay in the second-level cache while all panels are read.
  const std::size_t fit = (512 * 1024 / stride) / kTileRows * kTileRows;
  const std::size_t block = fit < kTileRows ? kTileRows : fit;
  for (std::size_t begin = 0; begin < num_rows; begin += block) {
    const std::size_t rows = num_rows - begin < block ? num_rows - begin : block;
    const std::byte* a = prepared + begin * stride;
    std::size_t panel = panel_begin;
    for (; rows == 1 && panel + kSingleRowPanels <= panel_end; panel += kSingleRowPanels)
      multiply_tile<Type, kSingleRowPanels, 1>(matrix, panel, a, stride, out + begin * out_stride, out_stride);
    for (; panel + 2 <= panel_end; panel += 2)
      multiply_panels<Type, 2>(matrix, panel, a, stride, rows, out + begin * out_stride, out_stride);
    if (panel < panel_end)
      multiply_panels<Type, 1>(matrix, panel, a, stride, rows, out + begin * out_stride, out_stride);
  }
}

}  // namespace

Matmul* matmul_numbers(WeightType type) {
  return visit_type(type, [](auto format) -> Matmul* {
    using Packing = typename decltype(format)::Packing;
    if constexpr (kIsNumbers<Packing>)
      return multiply<Vectors<typename Packing::Number>>;
    else
      return nullptr;
  });
}

}  // namespace troupe::kernels::avx512
