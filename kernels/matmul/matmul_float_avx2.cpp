// Matrix products of F32, F16 and BF16 weights with float32 activations on AVX2: one fused chain per
// output over ascending k. A fused multiply-add takes 4 cycles and two start per cycle, so at least
// 8 vectors of chains are in flight: one panel (2 vectors) by 4 or 6 rows, or for few rows 4 panels.
#include <immintrin.h>

#include "kernels/formats/weight_formats.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
namespace {

using namespace layout;

constexpr int kTileRows = 6;
constexpr int kMaxPanels = 4;

// Loads the weights of 8 outputs at one k.
template <class Number>
struct Vectors;
template <>
struct Vectors<GroupF32> {
  static constexpr std::size_t kBytes = 4;
  static __m256 load8(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
template <>
struct Vectors<GroupF16> {
  static constexpr std::size_t kBytes = 2;
  static __m256 load8(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
template <>
struct Vectors<GroupBF16> {
  static constexpr std::size_t kBytes = 2;
  static __m256 load8(const std::byte* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
};

template <class Type>
std::size_t panel_bytes(std::size_t k) {
  return round_up(k * kPanelRows * Type::kBytes, kLine);
}

// Stores the first `count` values, or all 8. Masked stores take tens of cycles on some CPUs: they are for the last
// columns of a matrix only.
inline void store_first(float* to, std::size_t count, __m256 values) {
  static constexpr std::int32_t kOnesThenZeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  if (count >= 8) return _mm256_storeu_ps(to, values);
  const auto* const mask = reinterpret_cast<const __m256i*>(kOnesThenZeros + 8 - count);
  _mm256_maskstore_ps(to, _mm256_loadu_si256(mask), values);
}

// The outputs of R rows and P panels from `panel` on. All loops over the sums are unrolled: else GCC 12 keeps them on
// the stack between the loops.
template <class Type, int P, int R>
void multiply_tile(const MatrixView& matrix, std::size_t panel, const std::byte* a, std::size_t stride, float* out,
                   std::size_t out_stride) {
  constexpr int kVectors = 2 * P;
  const std::size_t bytes = panel_bytes<Type>(matrix.k);
  const std::byte* weights = matrix.body + panel * bytes;
  __m256 sums[kVectors][R];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) sums[v][r] = _mm256_setzero_ps();
  for (std::size_t k = 0; k < matrix.k; ++k, weights += kPanelRows * Type::kBytes, a += 4) {
    __m256 w[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      w[v] = Type::load8(weights + static_cast<std::size_t>(v / 2) * bytes +
                         static_cast<std::size_t>(v % 2) * 8 * Type::kBytes);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_set1_ps(load<float>(a + static_cast<std::size_t>(r) * stride));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v][r] = _mm256_fmadd_ps(w[v], x, sums[v][r]);
    }
  }
  const __m256 scale = _mm256_set1_ps(matrix.scale);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const std::size_t n = panel * kPanelRows + static_cast<std::size_t>(v) * 8;
    const std::size_t count = n < matrix.rows ? matrix.rows - n : 0;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
      store_first(out + static_cast<std::size_t>(r) * out_stride + n, count, _mm256_mul_ps(sums[v][r], scale));
  }
}

template <class Type, int R>
void multiply_one_by_one(const MatrixView& matrix, std::size_t panel, std::size_t panel_end, const std::byte* a,
                         std::size_t stride, float* out, std::size_t out_stride) {
  for (; panel < panel_end; ++panel) multiply_tile<Type, 1, R>(matrix, panel, a, stride, out, out_stride);
}

// Up to kMaxPanels panels for a block of rows: row tiles of 6 and 4 rows with one panel at a time, the remaining rows
// one by one with all panels at once.
template <class Type>
void multiply_panels(const MatrixView& matrix, std::size_t panel, std::size_t panel_end, const std::byte* a,
                     std::size_t stride, std::size_t num_rows, float* out, std::size_t out_stride) {
  while (num_rows != 0) {
    std::size_t done = 1;
    if (num_rows >= kTileRows) {
      multiply_one_by_one<Type, kTileRows>(matrix, panel, panel_end, a, stride, out, out_stride);
      done = kTileRows;
    } else if (num_rows >= 4) {
      multiply_one_by_one<Type, 4>(matrix, panel, panel_end, a, stride, out, out_stride);
      done = 4;
    } else if (num_rows >= 2) {
      std::size_t p = panel;
      for (; p + 2 <= panel_end; p += 2) multiply_tile<Type, 2, 2>(matrix, p, a, stride, out, out_stride);
      multiply_one_by_one<Type, 2>(matrix, p, panel_end, a, stride, out, out_stride);
      done = 2;
    } else if (panel_end - panel == kMaxPanels) {
      multiply_tile<Type, kMaxPanels, 1>(matrix, panel, a, stride, out, out_stride);
    } else {
      multiply_one_by_one<Type, 1>(matrix, panel, panel_end, a, stride, out, out_stride);
    }
    num_rows -= done;
    a += done * stride;
    out += done * out_stride;
  }
}

template <class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const std::size_t stride = float_row_bytes(matrix.k);
  // The number of rows that stay in a second-level cache of 256 KiB while all panels are read.
  const std::size_t fit = (192 * 1024 / stride) / kTileRows * kTileRows;
  const std::size_t block = fit < kTileRows ? kTileRows : fit;
  for (std::size_t begin = 0; begin < num_rows; begin += block) {
    const std::size_t rows = num_rows - begin < block ? num_rows - begin : block;
    for (std::size_t panel = panel_begin; panel < panel_end; panel += kMaxPanels) {
      const std::size_t end = panel_end - panel < kMaxPanels ? panel_end : panel + kMaxPanels;
      multiply_panels<Type>(matrix, panel, end, prepared + begin * stride, stride, rows, out + begin * out_stride,
                            out_stride);
    }
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

}  // namespace troupe::kernels::avx2
