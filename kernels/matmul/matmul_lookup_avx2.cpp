// Products of ternary weights by table lookup, on AVX2: Layout::lookup.
//
// For one row of activations a triple of weights has 27 possible sums, 14 up to the sign. They are tabulated once per
// row of a matrix's input; then a lookup by four bits, and a sign, replaces three multiply-adds: `vpshufb` looks up 32
// at once. A sum has 10 bits and a byte 8, so there are two tables, for a high and a low part in base 31; their bytes
// are added over 8 steps before they are joined to int16, where the sums of 256 k always fit: 256 * 127 < 2^15. All of
// it is exact: the integers and the float chain are the same as in the multiply-add kernels.
//
// After Wei et al., T-MAC (2024), and Wang et al., bitnet.cpp (2025): docs/background/lookup_tables.md.
#include <immintrin.h>

#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
namespace {

using namespace layout;

constexpr std::size_t kHalf = kLine / 2;
constexpr std::size_t kStepsPerSign = 8;
// Prefetches this far ahead, as the other kernels for one row.
constexpr std::size_t kPrefetchBytes = 2048;

inline __m256i load_half_line(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// acc[0] += high, acc[1] += low parts of 32 lookups; those with a top bit in `signs` are subtracted.
inline void look_up(__m256i index, __m256i signs, const std::byte* table, __m256i (&acc)[2]) {
  const __m256i factor =
      _mm256_or_si256(signs, _mm256_set1_epi8(1));  // vpsignb would give zero for a factor of zero, so it is made odd
  const __m256i high = _mm256_shuffle_epi8(load_half_line(table + kLine), index);
  const __m256i low = _mm256_shuffle_epi8(load_half_line(table), index);
  acc[0] = _mm256_add_epi8(acc[0], _mm256_sign_epi8(high, factor));
  acc[1] = _mm256_add_epi8(acc[1], _mm256_sign_epi8(low, factor));
}

// sums[p][0] += rows 0-7 and sums[p][1] += rows 8-15 of one unit of P panels, in int16, separately per lane.
template <int P>
inline void add_unit(const std::byte* unit, std::size_t panel_bytes, const std::byte* tables, __m256i (&sums)[P][2]) {
  const __m256i low_mask = _mm256_set1_epi8(15), join = _mm256_set1_epi16(0x0100 | kLookupBase);
  for (std::size_t half = 0; half < kLine; half += kHalf)
    for (std::size_t begin = 0; begin < kLookupSteps; begin += kStepsPerSign) {
      __m256i acc[P][2], signs[P];
      for (int p = 0; p < P; ++p) {
        acc[p][0] = acc[p][1] = _mm256_setzero_si256();
        signs[p] =
            load_half_line(unit + static_cast<std::size_t>(p) * panel_bytes + begin / kStepsPerSign * kLine + half);
      }
      const std::size_t end = begin + kStepsPerSign < kLookupSteps ? begin + kStepsPerSign : kLookupSteps;
      for (std::size_t step = begin; step < end; step += 2) {
        const std::byte* table = tables + 2 * step * kLine + half;
        for (int p = 0; p < P; ++p) {
          const __m256i line =
              load_half_line(unit + static_cast<std::size_t>(p) * panel_bytes + kLookupSigns + step / 2 * kLine + half);
          look_up(_mm256_and_si256(line, low_mask), signs[p], table, acc[p]);
          signs[p] = _mm256_add_epi8(signs[p], signs[p]);
          look_up(_mm256_and_si256(_mm256_srli_epi16(line, 4), low_mask), signs[p], table + 2 * kLine, acc[p]);
          signs[p] = _mm256_add_epi8(signs[p], signs[p]);
        }
      }
      for (int p = 0; p < P; ++p) {
        const __m256i first = _mm256_unpacklo_epi8(acc[p][0], acc[p][1]);
        const __m256i second = _mm256_unpackhi_epi8(acc[p][0], acc[p][1]);
        sums[p][0] = _mm256_add_epi16(sums[p][0], _mm256_maddubs_epi16(join, first));
        sums[p][1] = _mm256_add_epi16(sums[p][1], _mm256_maddubs_epi16(join, second));
      }
    }
}

inline __m256 to_floats(__m256i sums) {
  const __m128i both = _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(both));
}

// P panels from `panel` on, for at most kLookupRows rows that have tables.
template <int P>
void look_up_panels(const MatrixView& matrix, std::size_t panel, const std::byte* prepared, std::size_t num_rows,
                    float* out, std::size_t out_stride) {
  const std::size_t panel_bytes = lookup_panel_bytes(matrix.k);
  const LookupRow row = lookup_row(matrix.k, kLookupRows);
  const Group256Row codes = group256_row(matrix.k);
  const std::byte* weights = matrix.body + panel * panel_bytes;
  __m256 acc[kLookupRows][P][2];
  for (std::size_t r = 0; r < num_rows; ++r)
    for (int p = 0; p < P; ++p) acc[r][p][0] = acc[r][p][1] = _mm256_setzero_ps();
  for (std::size_t g = 0; g * 256 < matrix.k; ++g) {
    const std::byte* unit = weights + kLine + g * kLookupUnit;
    for (std::size_t i = 0; i < kLookupUnit; i += kLine)
      for (int p = 0; p < P; ++p)
        _mm_prefetch(
            reinterpret_cast<const char*>(unit + static_cast<std::size_t>(p) * panel_bytes + kPrefetchBytes + i),
            _MM_HINT_T0);
    for (std::size_t r = 0; r < num_rows; ++r) {
      __m256i sums[P][2];
      for (int p = 0; p < P; ++p) sums[p][0] = sums[p][1] = _mm256_setzero_si256();
      add_unit<P>(unit, panel_bytes, prepared + r * row.tables + g * kLookupTables, sums);
      const __m256 da = _mm256_set1_ps(load<float>(prepared + row.codes + r * codes.bytes + codes.scale + 4 * g));
      for (int p = 0; p < P; ++p)
        for (int h = 0; h < 2; ++h) {
          const std::byte* scales = weights + static_cast<std::size_t>(p) * panel_bytes + 16 * h;
          const __m256 d = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
          acc[r][p][h] = _mm256_fmadd_ps(to_floats(sums[p][h]), _mm256_mul_ps(d, da), acc[r][p][h]);
        }
    }
  }
  for (std::size_t r = 0; r < num_rows; ++r)
    for (int p = 0; p < P; ++p) {
      alignas(32) float values[kPanelRows];
      _mm256_store_ps(values, acc[r][p][0]);
      _mm256_store_ps(values + 8, acc[r][p][1]);
      const std::size_t begin = (panel + static_cast<std::size_t>(p)) * kPanelRows;
      const std::size_t width = matrix.rows - begin < kPanelRows ? matrix.rows - begin : kPanelRows;
      for (std::size_t n = 0; n < width; ++n) out[r * out_stride + begin + n] = values[n] * matrix.scale;
    }
}

// The digits of 0..13: the factor of each activation of a triple in the table's sums; 14 and 15 are not used.
constexpr std::int8_t kDigits[3][16] = {{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0},
                                        {0, 0, 1, 1, 1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 0, 0},
                                        {0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, 0, 0}};

inline __m128i digits(int weight) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(kDigits[weight])); }

// Four bytes for each of the table entries first..first+3 and first+8..first+11: their digits and a zero.
inline __m256i digits_by_entry(std::size_t first) {
  alignas(32) std::int8_t bytes[32] = {};
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t weight = 0; weight < 3; ++weight) bytes[4 * i + weight] = kDigits[weight][first + i + i / 4 * 4];
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
}

// Makes the tables of one row from its codes. Bytes after the 256 k of a unit only affect sums that are never looked
// up.
void make_tables(const std::byte* codes, std::size_t k, std::byte* tables) {
  const __m256i digits_0 = digits_by_entry(0), digits_4 = digits_by_entry(4);
  const __m256i ones_8 = _mm256_set1_epi8(1), ones_16 = _mm256_set1_epi16(1);
  const __m256i base = _mm256_set1_epi16(kLookupBase), inverse = _mm256_set1_epi16((1 << 15) / kLookupBase);
  const auto sums_of = [&](__m256i a, __m256i by) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(ones_8, _mm256_sign_epi8(a, by)), ones_16);
  };
  for (std::size_t g = 0; g * 256 < k; ++g, codes += 256, tables += kLookupTables)
    for (std::size_t triple = 0; triple < 4 * kLookupSteps; ++triple) {
      const __m256i a = _mm256_set1_epi32(load<std::int32_t>(codes + 3 * triple));
      const __m256i sum = _mm256_packs_epi32(sums_of(a, digits_0), sums_of(a, digits_4));
      const __m256i high = _mm256_mulhrs_epi16(sum, inverse);  // rounded to nearest
      const __m256i low = _mm256_sub_epi16(sum, _mm256_mullo_epi16(high, base));
      const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
      std::byte* to = tables + triple / 4 * 2 * kLine + triple % 4 * 16;
      _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(both));
      _mm_store_si128(reinterpret_cast<__m128i*>(to + kLine), _mm256_extracti128_si256(both, 1));
    }
}

// Unpacks the codes (weight + 1) of a unit, in the order k, row.
void unpack_unit(const std::byte* unit, std::byte* codes) {
  const __m256i low_mask = _mm256_set1_epi8(15), one = _mm256_set1_epi8(1);
  const __m256i digit[3] = {_mm256_broadcastsi128_si256(digits(0)), _mm256_broadcastsi128_si256(digits(1)),
                            _mm256_broadcastsi128_si256(digits(2))};
  for (std::size_t half = 0; half < kLine; half += kHalf)
    for (std::size_t step = 0; step < kLookupSteps; ++step) {
      const __m256i line = load_half_line(unit + kLookupSigns + step / 2 * kLine + half);
      const __m256i nibbles = step % 2 == 0 ? line : _mm256_srli_epi16(line, 4);
      const __m256i index = _mm256_and_si256(nibbles, low_mask);
      const __m256i signs = _mm256_sll_epi16(load_half_line(unit + step / kStepsPerSign * kLine + half),
                                             _mm_cvtsi32_si128(static_cast<int>(step % kStepsPerSign)));
      const __m256i factor = _mm256_or_si256(signs, one);
      std::byte* to = codes + (4 * step + half / 16) * 3 * kPanelRows;
      for (std::size_t i = 0; i < 3; ++i) {
        const __m256i code = _mm256_add_epi8(_mm256_sign_epi8(_mm256_shuffle_epi8(digit[i], index), factor), one);
        _mm_store_si128(reinterpret_cast<__m128i*>(to + i * kPanelRows), _mm256_castsi256_si128(code));
        _mm_store_si128(reinterpret_cast<__m128i*>(to + (3 + i) * kPanelRows), _mm256_extracti128_si256(code, 1));
      }
    }
}

// Transposes four k of 16 rows, stored k by k, to 16 rows of four k. first: rows 0-3 and 8-11; second: the others.
inline void transpose_quad(const std::byte* codes, __m256i& first, __m256i& second) {
  const __m256i pairs = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 0, 8, 1, 9, 2, 10, 3, 11,
                                         4, 12, 5, 13, 6, 14, 7, 15);
  const __m256i a = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(load_half_line(codes), 0xd8), pairs);
  const __m256i b = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(load_half_line(codes + kHalf), 0xd8), pairs);
  first = _mm256_unpacklo_epi16(a, b);
  second = _mm256_unpackhi_epi16(a, b);
}

}  // namespace

void unpack_lookup_panel(const std::byte* panel, std::size_t k, std::byte* out) {
  for (std::size_t g = 0; g * 256 < k; ++g, out += kTQUnit) {
    alignas(64) std::byte codes[4 * kLookupSteps * 3 * kPanelRows];
    unpack_unit(panel + kLine + g * kLookupUnit, codes);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), load_half_line(panel));
    for (std::size_t line = 0; line < 16; ++line) {
      __m256i first = _mm256_setzero_si256(), second = _mm256_setzero_si256();
      for (int s = 3; s >= 0; --s) {
        __m256i next[2];
        transpose_quad(codes + (4 * line + static_cast<std::size_t>(s)) * kLine, next[0], next[1]);
        first = _mm256_or_si256(_mm256_slli_epi16(first, 2), next[0]);
        second = _mm256_or_si256(_mm256_slli_epi16(second, 2), next[1]);
      }
      auto* to = reinterpret_cast<__m256i*>(out + (1 + line) * kLine);
      _mm256_store_si256(to, _mm256_permute2x128_si256(first, second, 0x20));
      _mm256_store_si256(to + 1, _mm256_permute2x128_si256(first, second, 0x31));
    }
  }
}

void prepare_i8_group256_tables(const float* x, std::size_t k, std::size_t row_index, std::byte* prepared) {
  const LookupRow row = lookup_row(k, kLookupRows);
  std::byte* codes = prepared + row.codes + row_index * group256_row(k).bytes;
  prepare_i8_group256(x, k, 0, codes);
  if (row_index < kLookupRows) make_tables(codes, k, prepared + row_index * row.tables);
}

void matmul_lookup(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                   std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const bool has_tables = reinterpret_cast<std::uintptr_t>(prepared) % kLine == 0;
  if (num_rows <= kLookupRows && has_tables) {
    std::size_t panel = panel_begin;
    for (; panel + 2 <= panel_end; panel += 2) look_up_panels<2>(matrix, panel, prepared, num_rows, out, out_stride);
    if (panel < panel_end) look_up_panels<1>(matrix, panel, prepared, num_rows, out, out_stride);
    return;
  }
  const std::byte* codes = has_tables ? prepared + lookup_row(matrix.k, kLookupRows).codes : prepared;
  alignas(64) std::byte unpacked[kMaxLookupK / 256 * kTQUnit];
  for (std::size_t panel = panel_begin; panel < panel_end; ++panel) {
    unpack_lookup_panel(matrix.body + panel * lookup_panel_bytes(matrix.k), matrix.k, unpacked);
    const std::size_t begin = panel * kPanelRows;
    MatrixView one = matrix;
    one.layout = Layout::panels;
    one.body = unpacked;
    one.rows = matrix.rows - begin < kPanelRows ? matrix.rows - begin : kPanelRows;
    matmul_int8(one.type)(one, codes, num_rows, out + begin, out_stride, 0, 1);
  }
}

}  // namespace troupe::kernels::avx2
