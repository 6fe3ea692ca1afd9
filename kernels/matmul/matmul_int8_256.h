// Matrix products of quantized weights with int8 activations in vectors of 32 bytes, for avx2 and avxvnni.
//
// Blocks of 256 k of one panel are unpacked to bytes on the stack (Q8_0 is read in place) and multiplied with row tiles
// of a few rows; the float32 chains of up to 48 rows are kept in a buffer while the next block is unpacked (block, rows
// and chains: 19 KiB of first-level cache). Every output goes through the same operations for any row tile. All sums of
// integers are exact, so the integers, and with them the recipe, are the same in all integer variants.
//
// The variant defines how bytes are multiplied, in a struct `Dot`:
//   kTileRows  rows of a row tile
//   kAnyByte   any unsigned byte can be multiplied; else 8-bit codes are made signed: their sums start at zero
//   kFewRows, kFewTernaryRows  up to so many rows codes are multiplied as they are unpacked
//   kRowChains  sums per output of a few rows of ternary weights
//   multiply_run<Type, R>(run, codes, stride, sums)  sums[r][h] += the integer products of one run: 8 outputs
//              per half h, for R rows from `codes` on
//   Sum<Type>   for one output of half a line: add(i, half line, quad) for quads 0 to 3, then total() in int32
//   add_line(sum, half line, quad)  `sum` plus the products of ternary codes; 32 quads, of code 3 too, fit one sum
//   to_int32(sum)                   that sum as int32
//
// Everything has internal linkage: each file that includes this has its own copy, in its own instruction set.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/int8_types.h"
#include "kernels/variants.h"

namespace troupe::kernels::int8_256 {
namespace {

using namespace layout;

constexpr std::size_t kBlockRows = 48;
constexpr std::size_t kBlockK = 256;
// As in matmul_int8_512.h.
constexpr std::size_t kAhead = 4096;
constexpr std::size_t kHalf = kLine / 2;  // half a line: one vector, 8 rows

// One panel's part of a block, ready to multiply.
struct alignas(64) Block {
  std::uint8_t lines[kBlockK / 4 * kLine];
  float d[kBlockK / 16][16];              // scale per run
  float min[kBlockK / 16][16];            // for types with a min
  const std::uint8_t* run[kBlockK / 16];  // the codes of each run: in `lines` or in the packed lines
  const std::byte* ahead;                 // what to prefetch while this block is multiplied
};

inline const std::uint8_t* bytes(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }
inline __m256i load_half_line(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_half_line(std::uint8_t* p, __m256i x) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), x); }
inline __m256 halves_to_floats(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m128i load_8_bytes(const std::byte* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
inline __m256 bytes_to_floats(const std::byte* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8_bytes(p))); }
inline __m256 signed_bytes_to_floats(const std::byte* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p)));
}

// ---- Codes -----------------------------------------------------------------------------------------------------
//
// for_each_quad(from, use): calls use(q, half line) for the eight quads of a run of 32, for the half of each line that
// `from` points to; q is a constant. Codes are unsigned: raised by the values' offset.

inline __m256i each_byte(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
// Shifts by -7 to 7 places, to the left or, below 0, to the right. Bits of the neighbouring byte shift in, too.
inline __m256i shift_left(__m256i x, int places) {
  return places < 0 ? _mm256_srli_epi16(x, -places) : _mm256_slli_epi16(x, places);
}
// The bits of `mask` of the shifted x.
inline __m256i bits_of(__m256i x, int places, __m256i mask) { return _mm256_and_si256(shift_left(x, places), mask); }

template <int bits, class Values>
struct UnpackCodes;

// Calls use(q, nibbles) for the quads of four lines.
template <class Use>
[[gnu::always_inline]] inline void for_each_nibble(const std::uint8_t* from, const Use& use) {
  const __m256i low_mask = each_byte(15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256i line = load_half_line(from + static_cast<std::size_t>(j) * kLine);
    use(j, _mm256_and_si256(line, low_mask));
    use(j + 4, bits_of(line, -4, low_mask));
  }
}

// Read in place.
template <int offset>
struct UnpackCodes<8, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) use(q, load_half_line(from + static_cast<std::size_t>(q) * kLine));
  }
};

template <int offset>
struct UnpackCodes<4, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    for_each_nibble(from, use);
  }
};

// Nibbles that index a table of values.
template <const std::int8_t (&values)[16]>
struct UnpackCodes<4, Among<values>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m256i table =
        _mm256_add_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values))),
                        each_byte(Among<values>::kOffset));
    for_each_nibble(from, [&](int q, __m256i index) { use(q, _mm256_shuffle_epi8(table, index)); });
  }
};

template <int offset>
struct UnpackCodes<5, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m256i bit = each_byte(16), fifths = load_half_line(from);
    for_each_nibble(from + kLine, [&](int q, __m256i low) {  // bit q of `fifths` moves to bit 4
      use(q, _mm256_or_si256(low, bits_of(fifths, 4 - q, bit)));
    });
  }
};

template <int offset>
struct UnpackCodes<6, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m256i bits = each_byte(0x30);
    const __m256i upper[2] = {load_half_line(from), load_half_line(from + kLine)};  // of quads 0-3, 4-7
    for_each_nibble(from + 2 * kLine, [&](int q, __m256i low) {
      use(q, _mm256_or_si256(low, bits_of(upper[q / 4], 4 - 2 * (q % 4), bits)));
    });
  }
};

template <>
struct UnpackCodes<2, Minus<0>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m256i mask = each_byte(3), lines[2] = {load_half_line(from), load_half_line(from + kLine)};
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) use(q, bits_of(lines[q / 4], -2 * (q % 4), mask));
  }
};

template <int offset>
struct UnpackCodes<3, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m256i bit = each_byte(4), thirds = load_half_line(from);
    UnpackCodes<2, Minus<0>>::for_each_quad(from + kLine, [&](int q, __m256i two) {  // bit q of `thirds` moves to bit 2
      use(q, _mm256_or_si256(two, bits_of(thirds, 2 - q, bit)));
    });
  }
};

// ---- Scales ----------------------------------------------------------------------------------------------------
//
// Of one unit, for rows 8 * half to 8 * half + 7: d(run, half) and, for types with a min, min(run, half).

template <class Scales>
struct UnitScales;

// Float16 scales per 32 k, two to a unit.
template <>
struct UnitScales<scales::Halves> {
  const std::byte* unit;
  __m256 d(std::size_t run, std::size_t half) const { return halves_to_floats(unit + run * 32 + half * 16); }
};
template <>
struct UnitScales<scales::HalvesAndMins> {
  const std::byte* unit;
  __m256 d(std::size_t run, std::size_t half) const { return halves_to_floats(unit + run * 32 + half * 16); }
  __m256 min(std::size_t run, std::size_t half) const { return halves_to_floats(unit + kLine + run * 32 + half * 16); }
};

// Exponents per 32 k, four to a unit. The scale is half the power of two, because kMXFP4Values are doubled. The
// smallest two would be denormal, and are zero.
template <>
struct UnitScales<scales::Powers> {
  const std::byte* unit;
  __m256 d(std::size_t run, std::size_t half) const {
    const __m128i e = load_8_bytes(unit + run * 16 + half * 8);
    const __m256i exponents = _mm256_cvtepu8_epi32(_mm_subs_epu8(e, _mm_set1_epi8(1)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponents, 23));
  }
};

// An int8 scale for each run of 8 or of 4 quads, times a float16 per 256 k.
template <std::size_t count>
struct UnitScales<scales::SignedScales<count>> {
  const std::byte* unit;
  __m256 d(std::size_t run, std::size_t half) const {
    return _mm256_mul_ps(halves_to_floats(unit + 16 * half),
                         signed_bytes_to_floats(unit + kRunScales + 16 * run + 8 * half));
  }
};

// Q4_K, Q5_K.
template <>
struct UnitScales<scales::RunsAndMins> {
  const std::byte* unit;
  __m256 d(std::size_t run, std::size_t half) const {
    return _mm256_mul_ps(halves_to_floats(unit + 16 * half), bytes_to_floats(unit + kRunScales + 16 * run + 8 * half));
  }
  __m256 min(std::size_t run, std::size_t half) const {
    return _mm256_mul_ps(halves_to_floats(unit + kMinOffset + 16 * half),
                         bytes_to_floats(unit + kRunMins + 16 * run + 8 * half));
  }
};

// Q2_K: scale and min in one byte.
template <>
struct UnitScales<scales::HalfRunsAndMins> {
  const std::byte* unit;
  __m256i both(std::size_t run, std::size_t half) const {
    return _mm256_cvtepu8_epi32(load_8_bytes(unit + kRunScales + 16 * run + 8 * half));
  }
  __m256 d(std::size_t run, std::size_t half) const {
    return _mm256_mul_ps(halves_to_floats(unit + 16 * half),
                         _mm256_cvtepi32_ps(_mm256_and_si256(both(run, half), _mm256_set1_epi32(15))));
  }
  __m256 min(std::size_t run, std::size_t half) const {
    return _mm256_mul_ps(halves_to_floats(unit + kMinOffset + 16 * half),
                         _mm256_cvtepi32_ps(_mm256_srli_epi32(both(run, half), 4)));
  }
};

// ---- Types -----------------------------------------------------------------------------------------------------
//
// Types with UnitScales are unpacked as above. The others, ternary, have one scale for a block:
//   d(panel, block, half)     the scale
//   lines(panel, block)       what for_each_quad reads, for the first half; for the second half a line later
//   for_each_quad(from, use)  calls use(first, i, half line) for quads first + i of a block; i is a constant

template <class PackingType>
struct Units : Int8Type<PackingType> {
  using Packing = PackingType;
  using UnitScales = int8_256::UnitScales<typename Packing::Scales>;
  using UnpackCodes = int8_256::UnpackCodes<Packing::kBits, typename Packing::Values>;
  static constexpr PanelUnit kUnit = Packing::kPanelUnit;
  static constexpr bool kInPlace = Packing::kBits == 8;
};

struct TQ : Int8Type<Ternary> {
  static const std::byte* lines(const std::byte* panel, std::size_t block) { return panel + block * kTQUnit + kLine; }
  static __m256 d(const std::byte* panel, std::size_t block, std::size_t half) {
    return halves_to_floats(panel + block * kTQUnit + 16 * half);
  }
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::byte* from, const Use& use) {
    const __m256i mask = each_byte(3);
    for (std::size_t j = 0; j < 64; j += 4, from += kLine) {
      const __m256i line = load_half_line(bytes(from));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) use(j, static_cast<std::size_t>(i), bits_of(line, -2 * i, mask));
    }
  }
};

// Makes a block of a panel ready to multiply.
template <class Type>
void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
  if constexpr (requires { typename Type::UnitScales; }) {
    constexpr PanelUnit kUnit = Type::kUnit;
    constexpr std::size_t kUnitGroups = kUnit.k / 32, kGroupRuns = 8 / Type::kRunQuads;
    const std::byte* unit = panel + block * Type::kBlockBytes;
    for (std::size_t group = 0; group < num_groups; group += kUnitGroups, unit += unit_bytes(kUnit)) {
      const typename Type::UnitScales scales{unit};
      for (std::size_t i = 0; i < kUnitGroups * kGroupRuns; ++i) {
        const std::size_t run = group * kGroupRuns + i;
        for (std::size_t half = 0; half < 2; ++half) {
          _mm256_store_ps(out.d[run] + 8 * half, scales.d(i, half));
          if constexpr (Type::kHasMin) _mm256_store_ps(out.min[run] + 8 * half, scales.min(i, half));
        }
      }
      for (std::size_t g = 0; g < kUnitGroups; ++g) {
        const std::byte* from = unit + kUnit.header + g * run_bytes(kUnit);
        std::uint8_t* to = out.lines + (group + g) * 8 * kLine;
        for (std::size_t i = 0; i < kGroupRuns; ++i)
          out.run[(group + g) * kGroupRuns + i] = (Type::kInPlace ? bytes(from) : to) + i * Type::kRunQuads * kLine;
        for (std::size_t at = 0; at < kLine && !Type::kInPlace; at += kHalf)
          Type::UnpackCodes::for_each_quad(bytes(from) + at, [&](int q, __m256i codes) {
            store_half_line(to + static_cast<std::size_t>(q) * kLine + at, codes);
          });
      }
    }
  } else {
    out.run[0] = out.lines;
    for (std::size_t half = 0; half < 2; ++half) {
      _mm256_store_ps(out.d[0] + 8 * half, Type::d(panel, block, half));
      Type::for_each_quad(Type::lines(panel, block) + kHalf * half,
                          [&](std::size_t first, std::size_t i, __m256i codes) {
                            store_half_line(out.lines + (first + i) * kLine + kHalf * half, codes);
                          });
    }
  }
}

// Offsets of the parts of a prepared row, in either form.
struct RowLayout {
  std::size_t stride, scale, scaled_sum, start;
};
template <class Type>
RowLayout row_layout(std::size_t k) {
  if constexpr (Type::kRow256) {
    const Group256Row row = group256_row(k);
    return {row.bytes, row.scale, 0, row.start};
  } else {
    const Group32Row row = group32_row(k);
    return {row.bytes, row.scale, row.scaled_sum, Type::kRunQuads == 4 ? row.start16 : row.start};
  }
}

inline __m256 broadcast_float(const std::byte* p) { return _mm256_set1_ps(load<float>(p)); }
inline __m256i broadcast_int(const std::byte* p) { return _mm256_set1_epi32(load<std::int32_t>(p)); }

// Integer sums are kept as the bits of the float 1.5 * 2^23, plus the sum: for sums of up to 22 bits that is the float
// 1.5 * 2^23 + sum. Subtracting 1.5 * 2^23 gives the sum as float, exactly; on some CPUs additions have one more port
// than conversions.
constexpr std::int32_t kSumBias = 0x4b400000;
inline __m256 float_of_sum(__m256i sum) {
  return _mm256_sub_ps(_mm256_castsi256_ps(sum), _mm256_castsi256_ps(_mm256_set1_epi32(kSumBias)));
}

// The start of a run's integer sum: minus the codes' offset times the sum of the activations.
template <class Dot, class Type>
inline __m256i run_start(const std::byte* start) {
  const __m256i bias = _mm256_set1_epi32(kSumBias);
  if constexpr (Type::kStartShift < 0 || (Type::kWide && !Dot::kAnyByte))
    return bias;
  else
    return _mm256_add_epi32(bias, _mm256_srai_epi32(broadcast_int(start), Type::kStartShift));
}

// The activations' part of a run's min: scale times the sum of their codes.
template <class Type>
inline __m256 scaled_sum_of(const std::byte* scaled_sum, const std::byte* start, __m256 da) {
  if constexpr (Type::kRunQuads == 8) return broadcast_float(scaled_sum);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(broadcast_int(start)), _mm256_mul_ps(da, _mm256_set1_ps(kPerStart)));
}

// Prefetches `count` lines; they may lie behind the end of the weights.
template <std::size_t count>
inline void prefetch_lines(const std::byte* at) {
  for (std::size_t i = 0; i < count; ++i) _mm_prefetch(reinterpret_cast<const char*>(at + i * kLine), _MM_HINT_T1);
}
constexpr std::size_t lines_of(std::size_t bytes) { return (bytes + kLine - 1) / kLine; }

// acc[r][16] += one block, for R rows from `a` on.
template <class Dot, class Type, int R, bool prefetch>
inline void multiply_tile(const Block& block, const std::byte* a, const RowLayout& row, std::size_t block_index,
                          std::size_t num_runs, float* acc) {
  constexpr std::size_t kRunsPerBlock = kBlockK / 4 / Type::kRunQuads;
  constexpr std::size_t kRunsPerScale = Type::kRunQuads == 4 ? 2 : 1;
  const std::byte* codes = a + block_index * kBlockK;
  const std::byte* scale = a + row.scale + block_index * (kRunsPerBlock / kRunsPerScale) * 4;
  const std::byte* scaled_sums = a + row.scaled_sum + block_index * kRunsPerBlock * 4;
  const std::byte* start = a + row.start + block_index * kRunsPerBlock * 4;
  for (std::size_t run = 0; run < num_runs; ++run, codes += 4 * Type::kRunQuads) {
    if constexpr (prefetch) {
      constexpr std::size_t kLines = lines_of(Type::kBlockBytes / kRunsPerBlock);
      prefetch_lines<kLines>(block.ahead + run * kLines * kLine);
    }
    __m256i sums[R][2];
    for (int r = 0; r < R; ++r)
      sums[r][0] = sums[r][1] = run_start<Dot, Type>(start + static_cast<std::size_t>(r) * row.stride + 4 * run);
    Dot::template multiply_run<Type, R>(block.run[run], codes, row.stride, sums);
    for (int r = 0; r < R; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * row.stride;
      const __m256 da = broadcast_float(scale + at + run / kRunsPerScale * 4);
      __m256 scaled_sum{};
      if constexpr (Type::kHasMin)
        scaled_sum = scaled_sum_of<Type>(scaled_sums + at + run * 4, start + at + run * 4, da);
      for (int h = 0; h < 2; ++h) {
        float* to = acc + r * 16 + h * 8;
        const __m256 d = _mm256_mul_ps(_mm256_load_ps(block.d[run] + h * 8), da);
        __m256 sum = _mm256_fmadd_ps(float_of_sum(sums[r][h]), d, _mm256_load_ps(to));
        if constexpr (Type::kHasMin) sum = _mm256_fnmadd_ps(_mm256_load_ps(block.min[run] + h * 8), scaled_sum, sum);
        _mm256_store_ps(to, sum);
      }
    }
    // Forces the float sums to memory: GCC 12 would keep some in registers from run to run, and spill integer sums for
    // them.
    __asm__ volatile("" ::: "memory");
  }
}

// The rows after the last full row tile: R or fewer.
template <class Dot, class Type, int R, bool prefetch>
inline void multiply_rest(const Block& block, const std::byte* a, const RowLayout& row, std::size_t block_index,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  if constexpr (R > 0) {
    if (num_rows == R) return multiply_tile<Dot, Type, R, prefetch>(block, a, row, block_index, num_runs, acc);
    multiply_rest<Dot, Type, R - 1, prefetch>(block, a, row, block_index, num_runs, num_rows, acc);
  }
}

template <class Dot, class Type>
inline void multiply_rows(const Block& block, const std::byte* a, const RowLayout& row, std::size_t block_index,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  constexpr int kTile = Dot::kTileRows;
  if (num_rows < kTile)
    return multiply_rest<Dot, Type, kTile - 1, true>(block, a, row, block_index, num_runs, num_rows, acc);
  multiply_tile<Dot, Type, kTile, true>(block, a, row, block_index, num_runs, acc);
  std::size_t done = kTile;
  for (; done + kTile <= num_rows; done += kTile)
    multiply_tile<Dot, Type, kTile, false>(block, a + done * row.stride, row, block_index, num_runs,
                                           acc + done * kPanelRows);
  multiply_rest<Dot, Type, kTile - 1, false>(block, a + done * row.stride, row, block_index, num_runs, num_rows - done,
                                             acc + done * kPanelRows);
}

// One panel, for at most kBlockRows rows.
template <class Dot, class Type>
void multiply_panel(const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
                    std::size_t num_rows, float* out, std::size_t out_stride) {
  const std::byte* weights = matrix.body + panel * Type::panel_bytes(matrix.k);
  Block block;
  alignas(64) float acc[kBlockRows * kPanelRows];
  for (std::size_t i = 0; i < num_rows * kPanelRows; i += 8) _mm256_store_ps(acc + i, _mm256_setzero_ps());
  for (std::size_t index = 0; index * kBlockK < matrix.k; ++index) {
    const std::size_t rest = matrix.k - index * kBlockK;
    const std::size_t count = rest < kBlockK ? rest : kBlockK;
    unpack<Type>(weights, index, count / 32, block);
    block.ahead = weights + index * Type::kBlockBytes + kAhead;
    constexpr std::size_t kRun = 4 * Type::kRunQuads;  // TQ's last run may be shorter: padded with zeros
    multiply_rows<Dot, Type>(block, a, row, index, (count + kRun - 1) / kRun, num_rows, acc);
  }
  const std::size_t begin = panel * kPanelRows;
  const std::size_t width = matrix.rows - begin < kPanelRows ? matrix.rows - begin : kPanelRows;
  for (std::size_t r = 0; r < num_rows; ++r)
    for (std::size_t n = 0; n < width; ++n)
      // Every row of acc was stored above, by vectors, which the analyzer does not follow.
      // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
      out[r * out_stride + begin + n] = acc[r * kPanelRows + n] * matrix.scale;
}

// ---- A few rows ------------------------------------------------------------------------------------------------
//
// Codes are multiplied in registers as they are unpacked, panel after panel: a thread reads one stream of memory. See
// matmul_int8_512.h.

template <class Dot, class Type>
inline constexpr std::size_t kFewRows = Type::kRow256 ? Dot::kFewTernaryRows : Dot::kFewRows;
constexpr std::size_t kFewTile = 4;

template <int R>
inline void store_few(const __m256 (&sums)[R][2], const MatrixView& matrix, std::size_t panel, float* out,
                      std::size_t out_stride) {
  const std::size_t begin = panel * kPanelRows;
  const std::size_t width = matrix.rows - begin < kPanelRows ? matrix.rows - begin : kPanelRows;
  for (std::size_t r = 0; r < R; ++r) {
    alignas(32) float values[kPanelRows];
    _mm256_store_ps(values, sums[r][0]);
    _mm256_store_ps(values + 8, sums[r][1]);
    for (std::size_t n = 0; n < width; ++n) out[r * out_stride + begin + n] = values[n] * matrix.scale;
  }
}

// One panel, for R rows; prefetches what lies `ahead` bytes behind what it multiplies, if that is not 0.
template <class Dot, class Type, int R>
void multiply_few(const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
                  std::size_t ahead, float* out, std::size_t out_stride) {
  constexpr PanelUnit kUnit = Type::kUnit;
  constexpr std::size_t kGroupRuns = 8 / Type::kRunQuads;
  const std::byte* unit = matrix.body + panel * Type::panel_bytes(matrix.k);
  const std::byte *codes = a, *scale = a + row.scale, *scaled_sum = a + row.scaled_sum, *start = a + row.start;
  __m256 sums[R][2];
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
  for (std::size_t k = 0; k < matrix.k; k += kUnit.k, unit += unit_bytes(kUnit)) {
    const typename Type::UnitScales scales{unit};
    const std::size_t groups = (matrix.k - k < kUnit.k ? matrix.k - k : kUnit.k) / 32;
    for (std::size_t g = 0; g < groups; ++g) {
#pragma GCC unroll 2
      for (std::size_t half = 0; half < 2; ++half) {
        constexpr std::size_t kGroupBytes = unit_bytes(kUnit) / (kUnit.k / 32);
        if (half == 0 && ahead != 0) prefetch_lines<lines_of(kGroupBytes)>(unit + g * kGroupBytes + ahead);
        typename Dot::template Sum<Type> products[R][2];  // of quads 0 to 3 and 4 to 7
        const std::byte* lines = unit + kUnit.header + g * run_bytes(kUnit) + half * kHalf;
        Type::UnpackCodes::for_each_quad(bytes(lines), [&](int q, __m256i line) {
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r)
            products[r][q / 4].add(q % 4, line,
                                   broadcast_int(codes + static_cast<std::size_t>(r) * row.stride + 4 * q));
        });
#pragma GCC unroll 2
        for (std::size_t i = 0; i < kGroupRuns; ++i) {
          const __m256 d = scales.d(g * kGroupRuns + i, half);
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            const std::size_t at = static_cast<std::size_t>(r) * row.stride;
            __m256i total = _mm256_add_epi32(run_start<Dot, Type>(start + at + 4 * i), products[r][i].total());
            if constexpr (kGroupRuns == 1) total = _mm256_add_epi32(total, products[r][1].total());
            const __m256 da = broadcast_float(scale + at);
            sums[r][half] = _mm256_fmadd_ps(float_of_sum(total), _mm256_mul_ps(d, da), sums[r][half]);
            if constexpr (Type::kHasMin)
              sums[r][half] =
                  _mm256_fnmadd_ps(scales.min(g * kGroupRuns + i, half),
                                   scaled_sum_of<Type>(scaled_sum + at, start + at + 4 * i, da), sums[r][half]);
          }
        }
      }
      codes += 32;
      scale += 4;
      scaled_sum += 4;
      start += 4 * kGroupRuns;
    }
  }
  store_few<R>(sums, matrix, panel, out, out_stride);
}

// The same for ternary types.
template <class Dot, class Type, int R>
requires(Type::kRow256) void multiply_few(const MatrixView& matrix, std::size_t panel, const std::byte* a,
                                          const RowLayout& row, std::size_t ahead, float* out, std::size_t out_stride) {
  constexpr int kChains = Dot::kRowChains;
  const std::byte* weights = matrix.body + panel * Type::panel_bytes(matrix.k);
  __m256 sums[R][2];
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
  for (std::size_t block = 0; block * kBlockK < matrix.k; ++block) {
    const std::byte* codes = a + kBlockK * block;
    if (ahead != 0) prefetch_lines<lines_of(Type::kBlockBytes)>(Type::lines(weights, block) + ahead);
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i chains[R][kChains];
      for (int r = 0; r < R; ++r)
        for (__m256i& chain : chains[r]) chain = _mm256_setzero_si256();
      Type::for_each_quad(Type::lines(weights, block) + half * kHalf,
                          [&](std::size_t first, std::size_t i, __m256i line) {
#pragma GCC unroll 4
                            for (int r = 0; r < R; ++r) {
                              __m256i& chain = chains[r][i % kChains];
                              const std::size_t at = static_cast<std::size_t>(r) * row.stride + 4 * (first + i);
                              chain = Dot::add_line(chain, line, broadcast_int(codes + at));
                            }
                          });
      const __m256 d = Type::d(weights, block, half);
      for (int r = 0; r < R; ++r) {
        const std::byte* of_row = a + static_cast<std::size_t>(r) * row.stride + 4 * block;
        __m256i total = broadcast_int(of_row + row.start);
        for (const __m256i chain : chains[r]) total = _mm256_add_epi32(total, Dot::to_int32(chain));
        sums[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total),
                                        _mm256_mul_ps(d, broadcast_float(of_row + row.scale)), sums[r][half]);
      }
    }
  }
  store_few<R>(sums, matrix, panel, out, out_stride);
}

// One panel, for any number of rows.
template <class Dot, class Type,
          int R = kFewRows<Dot, Type><kFewTile ? kFewRows<Dot, Type> : kFewTile> void multiply_few_rows(
              const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
              std::size_t num_rows, bool is_first, float* out, std::size_t out_stride) {
  for (; num_rows >= R; num_rows -= R, a += R * row.stride, out += R * out_stride, is_first = false) {
    std::size_t ahead = 0;
    if (num_rows == R) ahead = !is_first ? Type::panel_bytes(matrix.k) : R > 1 ? kAhead : 0;
    multiply_few<Dot, Type, R>(matrix, panel, a, row, ahead, out, out_stride);
  }
  if constexpr (R > 1)
    if (num_rows > 0) multiply_few_rows<Dot, Type, R - 1>(matrix, panel, a, row, num_rows, is_first, out, out_stride);
}

template <class Dot, class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const RowLayout row = row_layout<Type>(matrix.k);
  if (num_rows <= kFewRows<Dot, Type>) {
    for (std::size_t panel = panel_begin; panel < panel_end; ++panel)
      multiply_few_rows<Dot, Type>(matrix, panel, prepared, row, num_rows, true, out, out_stride);
    return;
  }
  for (std::size_t begin = 0; begin < num_rows; begin += kBlockRows) {
    const std::size_t rows = num_rows - begin < kBlockRows ? num_rows - begin : kBlockRows;
    for (std::size_t panel = panel_begin; panel < panel_end; ++panel)
      multiply_panel<Dot, Type>(matrix, panel, prepared + begin * row.stride, row, rows, out + begin * out_stride,
                                out_stride);
  }
}

template <class Packing>
concept Unpacked = requires {
  sizeof(UnpackCodes<Packing::kBits, typename Packing::Values>);
  sizeof(UnitScales<typename Packing::Scales>);
};

// The product of a type; nullptr for numbers, and for codes or scales that are not unpacked here.
template <class Dot>
Matmul* matmul_of(WeightType type) {
  return visit_type(type, [](auto format) -> Matmul* {
    using Packing = typename decltype(format)::Packing;
    if constexpr (kIsNumbers<Packing>)
      return nullptr;
    else if constexpr (kIsTernary<Packing>)
      return multiply<Dot, TQ>;
    else if constexpr (Unpacked<Packing>)
      return multiply<Dot, Units<Packing>>;
    else
      return nullptr;
  });
}

}  // namespace
}  // namespace troupe::kernels::int8_256
