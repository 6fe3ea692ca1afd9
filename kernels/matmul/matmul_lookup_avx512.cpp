// Products of ternary weights by table lookup, on AVX-512 F, BW and VL: as matmul_lookup_avx2.cpp, with 64 lookups at
// once and signs in mask registers. Tables are made, and panels unpacked for many rows, by the AVX2 code.
#include <immintrin.h>

#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels {
namespace {

using namespace layout;

constexpr int kStepsPerSign = 8;
constexpr std::size_t kPrefetchBytes = 2048;

inline __m512i load_line(const std::byte* p) { return _mm512_loadu_si512(p); }

// acc[0] += high, acc[1] += low parts of 64 lookups, those of `negative` subtracted.
inline void look_up(__m512i index, __mmask64 negative, __m512i high_table, __m512i low_table, __m512i (&acc)[2]) {
  const __m512i high = _mm512_shuffle_epi8(high_table, index), low = _mm512_shuffle_epi8(low_table, index);
  const __m512i high_sum = _mm512_add_epi8(acc[0], high), low_sum = _mm512_add_epi8(acc[1], low);
  acc[0] = _mm512_mask_sub_epi8(high_sum, negative, acc[0], high);
  acc[1] = _mm512_mask_sub_epi8(low_sum, negative, acc[1], low);
}

// Steps [begin, begin + steps) of one unit of P panels: sums[p][0] += rows 0-7 and sums[p][1] += rows 8-15.
template <int P, int steps>
inline void add_steps(const std::byte* unit, std::size_t panel_bytes, const std::byte* tables, std::size_t begin,
                      __m512i (&sums)[P][2]) {
  const __m512i low_mask = _mm512_set1_epi8(15), join = _mm512_set1_epi16(0x0100 | kLookupBase);
  __m512i acc[P][2], signs[P];
  for (int p = 0; p < P; ++p) {
    acc[p][0] = acc[p][1] = _mm512_setzero_si512();
    signs[p] = load_line(unit + static_cast<std::size_t>(p) * panel_bytes + begin / kStepsPerSign * kLine);
  }
#pragma GCC unroll 4
  for (int i = 0; i < steps; i += 2) {
    const std::size_t step = begin + static_cast<std::size_t>(i);
    const std::byte* table = tables + 2 * step * kLine;
    const __m512i low0 = load_line(table), high0 = load_line(table + kLine);
    const __m512i low1 = load_line(table + 2 * kLine), high1 = load_line(table + 3 * kLine);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512i line =
          load_line(unit + static_cast<std::size_t>(p) * panel_bytes + kLookupSigns + step / 2 * kLine);
      const __mmask64 first = _mm512_test_epi8_mask(signs[p], _mm512_set1_epi8(static_cast<char>(0x80u >> i)));
      const __mmask64 second = _mm512_test_epi8_mask(signs[p], _mm512_set1_epi8(static_cast<char>(0x40u >> i)));
      look_up(_mm512_and_si512(line, low_mask), first, high0, low0, acc[p]);
      look_up(_mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask), second, high1, low1, acc[p]);
    }
  }
  for (int p = 0; p < P; ++p) {
    const __m512i rows_0 = _mm512_unpacklo_epi8(acc[p][0], acc[p][1]);
    const __m512i rows_8 = _mm512_unpackhi_epi8(acc[p][0], acc[p][1]);
    sums[p][0] = _mm512_add_epi16(sums[p][0], _mm512_maddubs_epi16(join, rows_0));
    sums[p][1] = _mm512_add_epi16(sums[p][1], _mm512_maddubs_epi16(join, rows_8));
  }
}

// Adds the lanes of the sums of 16 rows, and converts to floats.
inline __m512 to_floats(const __m512i (&sums)[2]) {
  const __m512i low = _mm512_shuffle_i64x2(sums[0], sums[1], 0x44);   // lanes 0, 1 of both
  const __m512i high = _mm512_shuffle_i64x2(sums[0], sums[1], 0xee);  // lanes 2, 3
  const __m512i two = _mm512_add_epi16(low, high);                    // two lanes each
  const __m512i swapped = _mm512_shuffle_i64x2(two, two, 0xb1);
  const __m512i one = _mm512_add_epi16(two, swapped);  // lanes 0 and 2 are the sums
  const __m256i rows = _mm512_castsi512_si256(_mm512_shuffle_i64x2(one, one, 0x08));
  return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(rows));
}

// P panels from `panel` on, for at most kLookupRows rows that have tables.
template <int P>
void look_up_panels(const MatrixView& matrix, std::size_t panel, const std::byte* prepared, std::size_t num_rows,
                    float* out, std::size_t out_stride) {
  const std::size_t panel_bytes = lookup_panel_bytes(matrix.k);
  const LookupRow row = lookup_row(matrix.k, kLookupRows);
  const Group256Row codes = group256_row(matrix.k);
  const std::byte* weights = matrix.body + panel * panel_bytes;
  __m512 acc[kLookupRows][P], d[P];
  for (int p = 0; p < P; ++p) {
    const std::byte* scales = weights + static_cast<std::size_t>(p) * panel_bytes;
    d[p] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
    for (std::size_t r = 0; r < num_rows; ++r) acc[r][p] = _mm512_setzero_ps();
  }
  for (std::size_t g = 0; g * 256 < matrix.k; ++g) {
    const std::byte* unit = weights + kLine + g * kLookupUnit;
    for (std::size_t i = 0; i < kLookupUnit; i += kLine)
      for (int p = 0; p < P; ++p)
        _mm_prefetch(
            reinterpret_cast<const char*>(unit + static_cast<std::size_t>(p) * panel_bytes + kPrefetchBytes + i),
            _MM_HINT_T0);
    for (std::size_t r = 0; r < num_rows; ++r) {
      const std::byte* tables = prepared + r * row.tables + g * kLookupTables;
      __m512i sums[P][2];
      for (int p = 0; p < P; ++p) sums[p][0] = sums[p][1] = _mm512_setzero_si512();
      add_steps<P, 8>(unit, panel_bytes, tables, 0, sums);
      add_steps<P, 8>(unit, panel_bytes, tables, 8, sums);
      add_steps<P, 6>(unit, panel_bytes, tables, 16, sums);
      const __m512 da = _mm512_set1_ps(load<float>(prepared + row.codes + r * codes.bytes + codes.scale + 4 * g));
      for (int p = 0; p < P; ++p) acc[r][p] = _mm512_fmadd_ps(to_floats(sums[p]), _mm512_mul_ps(d[p], da), acc[r][p]);
    }
  }
  const __m512 scale = _mm512_set1_ps(matrix.scale);
  for (std::size_t r = 0; r < num_rows; ++r)
    for (int p = 0; p < P; ++p) {
      const std::size_t n = (panel + static_cast<std::size_t>(p)) * kPanelRows;
      const std::size_t width = matrix.rows - n;
      const auto mask = static_cast<__mmask16>(width >= 16 ? 0xffff : (1u << width) - 1);
      _mm512_mask_storeu_ps(out + r * out_stride + n, mask, _mm512_mul_ps(acc[r][p], scale));
    }
}

// For rows without tables, or more than kLookupRows: panels are unpacked two at a time and multiplied by `multiply`.
void multiply_unpacked(Matmul* multiply, const MatrixView& matrix, const std::byte* codes, std::size_t num_rows,
                       float* out, std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  constexpr std::size_t kPanels = 2;
  alignas(64) std::byte unpacked[kPanels * kMaxLookupK / 256 * kTQUnit];
  const std::size_t panel_bytes = (matrix.k + 255) / 256 * kTQUnit;
  for (std::size_t panel = panel_begin; panel < panel_end; panel += kPanels) {
    const std::size_t count = panel_end - panel < kPanels ? panel_end - panel : kPanels;
    for (std::size_t p = 0; p < count; ++p)
      avx2::unpack_lookup_panel(matrix.body + (panel + p) * lookup_panel_bytes(matrix.k), matrix.k,
                                unpacked + p * panel_bytes);
    const std::size_t begin = panel * kPanelRows;
    MatrixView some = matrix;
    some.layout = Layout::panels;
    some.body = unpacked;
    some.rows = matrix.rows - begin < count * kPanelRows ? matrix.rows - begin : count * kPanelRows;
    multiply(some, codes, num_rows, out + begin, out_stride, 0, count);
  }
}

void matmul_lookup_or(Matmul* multiply, const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows,
                      float* out, std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const bool has_tables = reinterpret_cast<std::uintptr_t>(prepared) % kLine == 0;
  if (num_rows > kLookupRows || !has_tables) {
    const std::byte* codes = has_tables ? prepared + lookup_row(matrix.k, kLookupRows).codes : prepared;
    return multiply_unpacked(multiply, matrix, codes, num_rows, out, out_stride, panel_begin, panel_end);
  }
  std::size_t panel = panel_begin;
  for (; panel + 2 <= panel_end; panel += 2) look_up_panels<2>(matrix, panel, prepared, num_rows, out, out_stride);
  if (panel < panel_end) look_up_panels<1>(matrix, panel, prepared, num_rows, out, out_stride);
}

}  // namespace

#define TROUPE_MATMUL_LOOKUP(variant)                                                                                \
  void variant::matmul_lookup(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out, \
                              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {              \
    matmul_lookup_or(matmul_int8(matrix.type), matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end); \
  }
TROUPE_MATMUL_LOOKUP(avx512)
TROUPE_MATMUL_LOOKUP(avx512vnni)

}  // namespace troupe::kernels
