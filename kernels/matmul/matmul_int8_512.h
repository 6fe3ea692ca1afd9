// Matrix products of quantized weights with int8 activations in vectors of 64 bytes, for avx512 and avx512vnni.
//
// Blocks of 256 k of two panels are unpacked to unsigned bytes on the stack (Q8_0 is read in place) and multiplied with
// row tiles of 6 rows: with VNNI 12 int32 and 12 float32 accumulators, one broadcast of an activation quad serves two
// `vpdpbusd`. The float32 chains of up to 48 rows are kept in an L1-sized buffer while the next block is unpacked, so
// unpacking costs some 7 % of a large product. A few rows are multiplied without the stack, see below. Every output
// goes through the same operations in the same order either way, for any row tile.
//
// The variant defines how bytes are multiplied, in a struct `Dot`:
//   kAnyByte    any unsigned byte can be multiplied: codes are raised to the offset of 128, for which a row's `start`
//               is; else 8-bit codes are made signed: their sums start at zero
//   kStepQuads  the most quads of one multiply_quads
//   kChains<n>  int32 sums per output if n vectors of outputs are multiplied at once
//   multiply_quads<Type, kQuads>(blocks, line, codes, stride, chains)  adds the products of kQuads quads to
//               chains[p][r]: P panels from `line` on, R rows from `codes` on
//   Sum<Type>   for one vector of outputs: add(i, line, quad) for quads 0 to 3, then total() in int32
//   add_line(sum, line, quad)  `sum` plus the products of ternary codes; 32 quads, of code 3 too, fit one sum
//   to_int32(sum)              that sum as int32
//
// Everything has internal linkage: each file that includes this has its own copy, in its own instruction set.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/int8_types.h"
#include "kernels/variants.h"

namespace troupe::kernels::int8_512 {
namespace {

using namespace layout;

constexpr int kTileRows = 6;
constexpr std::size_t kBlockRows = 48;
constexpr std::size_t kBlockK = 256;
constexpr int kMaxPanels = 2;
// While several rows are multiplied, memory must not idle: the first tile of rows prefetches to the second-level cache
// (docs/measuring.md).
constexpr std::size_t kAhead = 4096;

// One panel's part of a block, ready to multiply.
struct alignas(64) Block {
  std::uint8_t lines[kBlockK / 4 * kLine];
  float d[kBlockK / 16][16];    // scale per run
  float min[kBlockK / 16][16];  // for types with a min
  const std::uint8_t* first;    // `lines`, or the packed lines themselves
  const std::byte* ahead;       // what to prefetch while this block is multiplied
};

inline const std::uint8_t* bytes(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }
inline __m512i load_line(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
inline __m512 load_halves(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
inline __m512 bytes_to_floats(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline __m512 signed_bytes_to_floats(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// ---- Codes -----------------------------------------------------------------------------------------------------
//
// for_each_quad(from, use): calls use(q, line) for the eight quads of a run of 32; q is a constant. Codes are unsigned:
// raised by the values' offset.

inline __m512i each_byte(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
// (a & b) | c
inline __m512i and_or(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0xea); }
// Shifts by -7 to 7 places, to the left or, below 0, to the right. Bits of the neighbouring byte shift in, too.
inline __m512i shift_left(__m512i x, int places) {
  return places < 0 ? _mm512_srli_epi16(x, static_cast<unsigned>(-places))
                    : _mm512_slli_epi16(x, static_cast<unsigned>(places));
}

template <int bits, class Values>
struct UnpackCodes;

// Calls use(q, nibbles) for the quads of four lines.
template <class Use>
[[gnu::always_inline]] inline void for_each_nibble(const std::uint8_t* from, const Use& use) {
  const __m512i low_mask = each_byte(15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i line = load_line(from + j * kLine);
    use(j, _mm512_and_si512(line, low_mask));
    use(j + 4, _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask));
  }
}

// Read in place.
template <int offset>
struct UnpackCodes<8, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) use(q, load_line(from + q * kLine));
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
    const __m512i table =
        _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values))),
                        each_byte(Among<values>::kOffset));
    for_each_nibble(from, [&](int q, __m512i index) { use(q, _mm512_shuffle_epi8(table, index)); });
  }
};

template <int offset>
struct UnpackCodes<5, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m512i bit = each_byte(16), fifths = load_line(from);
    for_each_nibble(from + kLine, [&](int q, __m512i low) {  // bit q of `fifths` moves to bit 4
      use(q, and_or(shift_left(fifths, 4 - q), bit, low));
    });
  }
};

template <int offset>
struct UnpackCodes<6, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m512i bits = each_byte(0x30), upper[2] = {load_line(from), load_line(from + kLine)};  // quads 0-3, 4-7
    for_each_nibble(from + 2 * kLine,
                    [&](int q, __m512i low) { use(q, and_or(shift_left(upper[q / 4], 4 - 2 * (q % 4)), bits, low)); });
  }
};

template <>
struct UnpackCodes<2, Minus<0>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m512i mask = each_byte(3), lines[2] = {load_line(from), load_line(from + kLine)};
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) use(q, _mm512_and_si512(shift_left(lines[q / 4], -2 * (q % 4)), mask));
  }
};

template <int offset>
struct UnpackCodes<3, Minus<offset>> {
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::uint8_t* from, const Use& use) {
    const __m512i bit = each_byte(4), thirds = load_line(from);
    UnpackCodes<2, Minus<0>>::for_each_quad(from + kLine, [&](int q, __m512i two) {  // bit q of `thirds` moves to bit 2
      use(q, and_or(shift_left(thirds, 2 - q), bit, two));
    });
  }
};

// ---- Scales ----------------------------------------------------------------------------------------------------
//
// Of one unit: d(run) and, for types with a min, min(run).

template <class Scales>
struct UnitScales;

// Float16 scales per 32 k, two to a unit.
template <>
struct UnitScales<scales::Halves> {
  const std::byte* unit;
  __m512 d(std::size_t run) const { return load_halves(unit + run * 32); }
};
template <>
struct UnitScales<scales::HalvesAndMins> {
  const std::byte* unit;
  __m512 d(std::size_t run) const { return load_halves(unit + run * 32); }
  __m512 min(std::size_t run) const { return load_halves(unit + kLine + run * 32); }
};

// Exponents per 32 k, four to a unit. The scale is half the power of two, because kMXFP4Values are doubled. The
// smallest two would be denormal, and are zero.
template <>
struct UnitScales<scales::Powers> {
  const std::byte* unit;
  __m512 d(std::size_t run) const {
    const __m128i e = _mm_loadu_si128(reinterpret_cast<const __m128i*>(unit + run * 16));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_subs_epu8(e, _mm_set1_epi8(1))), 23));
  }
};

// An int8 scale for each run of 8 or of 4 quads, times a float16 per 256 k.
template <std::size_t count>
struct UnitScales<scales::SignedScales<count>> {
  explicit UnitScales(const std::byte* from) : unit(from), unit_d(load_halves(from)) {}
  __m512 d(std::size_t run) const {
    return _mm512_mul_ps(unit_d, signed_bytes_to_floats(bytes(unit) + kRunScales + 16 * run));
  }
  const std::byte* unit;
  __m512 unit_d;
};

// Q4_K, Q5_K.
template <>
struct UnitScales<scales::RunsAndMins> {
  explicit UnitScales(const std::byte* from)
      : unit(from), unit_d(load_halves(from)), unit_min(load_halves(from + kMinOffset)) {}
  __m512 d(std::size_t run) const {
    return _mm512_mul_ps(unit_d, bytes_to_floats(bytes(unit) + kRunScales + 16 * run));
  }
  __m512 min(std::size_t run) const {
    return _mm512_mul_ps(unit_min, bytes_to_floats(bytes(unit) + kRunMins + 16 * run));
  }
  const std::byte* unit;
  __m512 unit_d, unit_min;
};

// Q2_K: scale and min in one byte.
template <>
struct UnitScales<scales::HalfRunsAndMins> {
  explicit UnitScales(const std::byte* from)
      : unit(from), unit_d(load_halves(from)), unit_min(load_halves(from + kMinOffset)) {}
  __m512i both(std::size_t run) const {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(unit + kRunScales + 16 * run)));
  }
  __m512 d(std::size_t run) const {
    return _mm512_mul_ps(unit_d, _mm512_cvtepi32_ps(_mm512_and_si512(both(run), _mm512_set1_epi32(15))));
  }
  __m512 min(std::size_t run) const {
    return _mm512_mul_ps(unit_min, _mm512_cvtepi32_ps(_mm512_srli_epi32(both(run), 4)));
  }
  const std::byte* unit;
  __m512 unit_d, unit_min;
};

// ---- Types -----------------------------------------------------------------------------------------------------
//
//   kPairGap  bytes between pairs of runs of a block
// Types with UnitScales are unpacked as above. The others, ternary, have one scale for a block:
//   d(panel, block)            the scale
//   lines(panel, block)        what for_each_quad reads
//   for_each_quad(lines, use)  calls use(first, i, line) for quads first + i of a block; i is a constant

template <class PackingType>
struct Units : Int8Type<PackingType> {
  using Packing = PackingType;
  using UnitScales = int8_512::UnitScales<typename Packing::Scales>;
  using UnpackCodes = int8_512::UnpackCodes<Packing::kBits, typename Packing::Values>;
  static constexpr PanelUnit kUnit = Packing::kPanelUnit;
  static constexpr bool kInPlace = Packing::kBits == 8;
  static constexpr std::size_t kPairGap = kInPlace ? kUnit.header : 0;
};

struct TQ : Int8Type<Ternary> {
  static constexpr std::size_t kPairGap = 0;
  static const std::byte* lines(const std::byte* panel, std::size_t block) { return panel + block * kTQUnit + kLine; }
  static __m512 d(const std::byte* panel, std::size_t block) { return load_halves(panel + block * kTQUnit); }
  template <class Use>
  [[gnu::always_inline]] static void for_each_quad(const std::byte* lines, const Use& use) {
    const __m512i mask = each_byte(3);
    for (std::size_t j = 0; j < 64; j += 4, lines += kLine) {
      const __m512i line = load_line(bytes(lines));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) use(j, static_cast<std::size_t>(i), _mm512_and_si512(shift_left(line, -2 * i), mask));
    }
  }
};

// Adds to codes what raises their offset to 128, if any byte can be multiplied.
template <class Dot, int offset>
inline __m512i lift(__m512i codes) {
  if constexpr (Dot::kAnyByte && offset != 0 && offset != kSumOffset)
    return _mm512_add_epi8(codes, each_byte(kSumOffset - offset));
  else
    return codes;
}

// Makes a block of a panel ready to multiply.
template <class Dot, class Type>
void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
  out.first = out.lines;
  if constexpr (requires { typename Type::UnitScales; }) {
    constexpr PanelUnit kUnit = Type::kUnit;
    constexpr std::size_t kUnitGroups = kUnit.k / 32, kUnitRuns = kUnit.k / 4 / Type::kRunQuads;
    const std::byte* unit = panel + block * Type::kBlockBytes;
    if constexpr (Type::kInPlace) out.first = bytes(unit) + kUnit.header;
    for (std::size_t group = 0; group < num_groups; group += kUnitGroups, unit += unit_bytes(kUnit)) {
      const typename Type::UnitScales scales{unit};
      for (std::size_t i = 0; i < kUnitRuns; ++i) {
        const std::size_t run = group / kUnitGroups * kUnitRuns + i;
        _mm512_store_ps(out.d[run], scales.d(i));
        if constexpr (Type::kHasMin) _mm512_store_ps(out.min[run], scales.min(i));
      }
      for (std::size_t g = 0; g < kUnitGroups && !Type::kInPlace; ++g) {
        std::uint8_t* to = out.lines + (group + g) * 8 * kLine;
        const std::byte* run = unit + kUnit.header + g * run_bytes(kUnit);
        Type::UnpackCodes::for_each_quad(bytes(run), [&](int q, __m512i codes) {
          _mm512_store_si512(to + q * kLine, lift<Dot, Type::kOffset>(codes));
        });
      }
    }
  } else {
    _mm512_store_ps(out.d[0], Type::d(panel, block));
    Type::for_each_quad(Type::lines(panel, block), [&](std::size_t first, std::size_t i, __m512i codes) {
      _mm512_store_si512(out.lines + (first + i) * kLine, codes);
    });
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

inline float float_at(const std::byte* p) { return *reinterpret_cast<const float*>(p); }
inline int int_at(const std::byte* p) { return *reinterpret_cast<const int*>(p); }

// The start of a run's integer sum: minus the codes' offset times the sum of the activations. `raised`: codes have the
// offset 128.
template <class Dot, class Type, bool raised>
inline __m512i run_start(const std::byte* start) {
  if constexpr (Type::kStartShift < 0 || (Type::kWide && !Dot::kAnyByte))
    return _mm512_setzero_si512();
  else if constexpr (raised)
    return _mm512_set1_epi32(int_at(start));
  else
    return _mm512_srai_epi32(_mm512_set1_epi32(int_at(start)), Type::kStartShift);
}

// Prefetches `count` lines; they may lie behind the end of the weights.
template <std::size_t count>
inline void prefetch_lines(const std::byte* at) {
  for (std::size_t i = 0; i < count; ++i) _mm_prefetch(reinterpret_cast<const char*>(at + i * kLine), _MM_HINT_T1);
}
constexpr std::size_t lines_of(std::size_t bytes) { return (bytes + kLine - 1) / kLine; }

// Disables UBSan here: with checks on each of the thousands of loads of a product, clang 14 takes minutes. ASan stays
// on.
#define TROUPE_UNCHECKED __attribute__((no_sanitize("undefined")))

// The activations' part of a run's min: scale times the sum of their codes.
template <class Type>
inline __m512 scaled_sum_of(const std::byte* scaled_sum, const std::byte* start, __m512 da) {
  if constexpr (Type::kRunQuads == 8) return _mm512_set1_ps(float_at(scaled_sum));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_set1_epi32(int_at(start))),
                       _mm512_mul_ps(da, _mm512_set1_ps(kPerStart)));
}

// acc[r][p] += one block, for R rows from `a` on and P panels.
template <class Dot, class Type, int P, int R, bool prefetch>
TROUPE_UNCHECKED inline void multiply_tile(const Block* blocks, const std::byte* a, const RowLayout& row,
                                           std::size_t block, std::size_t num_runs, float* acc) {
  constexpr std::size_t kRunsPerBlock = kBlockK / 4 / Type::kRunQuads;
  constexpr std::size_t kRunsPerScale = Type::kRunQuads == 4 ? 2 : 1;
  constexpr int kStep = Type::kRunQuads < Dot::kStepQuads ? Type::kRunQuads : Dot::kStepQuads;
  constexpr int kChains = Dot::template kChains<P * R>;
  __m512 sums[P][R];
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) sums[p][r] = _mm512_load_ps(acc + (r * P + p) * 16);
  const std::byte* codes = a + block * kBlockK;
  const std::byte* scale = a + row.scale + block * (kRunsPerBlock / kRunsPerScale) * 4;
  const std::byte* scaled_sums = a + row.scaled_sum + block * kRunsPerBlock * 4;
  const std::byte* start = a + row.start + block * kRunsPerBlock * 4;
  std::size_t line = 0;
  for (std::size_t run = 0; run < num_runs; ++run) {
    if constexpr (prefetch) {
      constexpr std::size_t kLines = lines_of(Type::kBlockBytes / kRunsPerBlock);
      for (int p = 0; p < P; ++p) prefetch_lines<kLines>(blocks[p].ahead + run * kLines * kLine);
    }
    __m512i chains[P][R][kChains];
    for (int p = 0; p < P; ++p)
      for (int r = 0; r < R; ++r) {
        chains[p][r][0] = run_start<Dot, Type, Dot::kAnyByte>(start + r * row.stride + 4 * run);
        for (int c = 1; c < kChains; ++c) chains[p][r][c] = _mm512_setzero_si512();
      }
    for (int quad = 0; quad < Type::kRunQuads; quad += kStep) {
      Dot::template multiply_quads<Type, kStep>(blocks, line, codes, row.stride, chains);
      line += kStep * kLine;
      codes += 4 * kStep;
    }
    if constexpr (Type::kPairGap != 0) line += run % 2 * Type::kPairGap;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 da = _mm512_set1_ps(float_at(scale + r * row.stride + run / kRunsPerScale * 4));
      __m512 scaled_sum{};
      if constexpr (Type::kHasMin)
        scaled_sum = scaled_sum_of<Type>(scaled_sums + r * row.stride + run * 4, start + r * row.stride + run * 4, da);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) {
        __m512i total = chains[p][r][0];
        for (int c = 1; c < kChains; ++c) total = _mm512_add_epi32(total, chains[p][r][c]);
        const __m512 d = _mm512_mul_ps(_mm512_load_ps(blocks[p].d[run]), da);
        sums[p][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), d, sums[p][r]);
        if constexpr (Type::kHasMin)
          sums[p][r] = _mm512_fnmadd_ps(_mm512_load_ps(blocks[p].min[run]), scaled_sum, sums[p][r]);
      }
    }
  }
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) _mm512_store_ps(acc + (r * P + p) * 16, sums[p][r]);
}

// The rows after the last full row tile: R or fewer.
template <class Dot, class Type, int P, int R, bool prefetch>
inline void multiply_rest(const Block* blocks, const std::byte* a, const RowLayout& row, std::size_t block,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  if constexpr (R > 0) {
    if (num_rows == R) return multiply_tile<Dot, Type, P, R, prefetch>(blocks, a, row, block, num_runs, acc);
    multiply_rest<Dot, Type, P, R - 1, prefetch>(blocks, a, row, block, num_runs, num_rows, acc);
  }
}

template <class Dot, class Type, int P>
inline void multiply_rows(const Block* blocks, const std::byte* a, const RowLayout& row, std::size_t block,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  if (num_rows < kTileRows)
    return multiply_rest<Dot, Type, P, kTileRows - 1, true>(blocks, a, row, block, num_runs, num_rows, acc);
  multiply_tile<Dot, Type, P, kTileRows, true>(blocks, a, row, block, num_runs, acc);
  std::size_t done = kTileRows;
  for (; done + kTileRows <= num_rows; done += kTileRows)
    multiply_tile<Dot, Type, P, kTileRows, false>(blocks, a + done * row.stride, row, block, num_runs,
                                                  acc + done * P * 16);
  multiply_rest<Dot, Type, P, kTileRows - 1, false>(blocks, a + done * row.stride, row, block, num_runs,
                                                    num_rows - done, acc + done * P * 16);
}

// P panels from `panel` on, for at most kBlockRows rows.
template <class Dot, class Type, int P>
void multiply_panels(const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
                     std::size_t num_rows, float* out, std::size_t out_stride) {
  const std::size_t panel_bytes = Type::panel_bytes(matrix.k);
  Block blocks[P];
  alignas(64) float acc[kBlockRows * P * 16];
  for (std::size_t i = 0; i < num_rows * P * 16; i += 16) _mm512_store_ps(acc + i, _mm512_setzero_ps());
  for (std::size_t block = 0; block * kBlockK < matrix.k; ++block) {
    const std::size_t rest = matrix.k - block * kBlockK;
    const std::size_t count = rest < kBlockK ? rest : kBlockK;
    for (int p = 0; p < P; ++p) {
      const std::byte* weights = matrix.body + (panel + static_cast<std::size_t>(p)) * panel_bytes;
      unpack<Dot, Type>(weights, block, count / 32, blocks[p]);
      // Two panels are read at once: half as far ahead in each.
      blocks[p].ahead = weights + block * Type::kBlockBytes + (P == 1 ? kAhead : kAhead / 2);
    }
    constexpr std::size_t kRun = 4 * Type::kRunQuads;  // TQ's last run may be shorter: padded with zeros
    multiply_rows<Dot, Type, P>(blocks, a, row, block, (count + kRun - 1) / kRun, num_rows, acc);
  }
  const __m512 scale = _mm512_set1_ps(matrix.scale);
  for (int p = 0; p < P; ++p) {
    const std::size_t n = (panel + static_cast<std::size_t>(p)) * kPanelRows;
    const std::size_t width = matrix.rows - n;
    const auto mask = static_cast<__mmask16>(width >= 16 ? 0xffff : (1u << width) - 1);
    for (std::size_t r = 0; r < num_rows; ++r)
      _mm512_mask_storeu_ps(out + r * out_stride + n, mask,
                            _mm512_mul_ps(_mm512_load_ps(acc + (r * P + static_cast<std::size_t>(p)) * 16), scale));
  }
}

// ---- A few rows ------------------------------------------------------------------------------------------------
//
// Codes are multiplied in registers as they are unpacked, panel after panel: a thread reads one stream of memory.
//
// Up to kFewRows rows that is faster than unpacking once for all of them: stores of unpacked codes take more time than
// unpacking, and later tiles of rows find the panel in a cache.

constexpr int kFewTile = 4;
constexpr std::size_t kFewRows = 12;

template <int R>
inline void store_few(const __m512 (&sums)[R], const MatrixView& matrix, std::size_t panel, float* out,
                      std::size_t out_stride) {
  const std::size_t n = panel * kPanelRows, width = matrix.rows - n;
  const auto mask = static_cast<__mmask16>(width >= 16 ? 0xffff : (1u << width) - 1);
  for (int r = 0; r < R; ++r)
    _mm512_mask_storeu_ps(out + r * out_stride + n, mask, _mm512_mul_ps(sums[r], _mm512_set1_ps(matrix.scale)));
}

// One panel, for R rows; prefetches what lies `ahead` bytes behind what it multiplies, if that is not 0.
template <class Dot, class Type, int R>
TROUPE_UNCHECKED void multiply_few(const MatrixView& matrix, std::size_t panel, const std::byte* a,
                                   const RowLayout& row, std::size_t ahead, float* out, std::size_t out_stride) {
  constexpr PanelUnit kUnit = Type::kUnit;
  constexpr int kRunsPerGroup = 8 / Type::kRunQuads;
  const std::byte* unit = matrix.body + panel * Type::panel_bytes(matrix.k);
  const std::byte *codes = a, *scale = a + row.scale, *scaled_sum = a + row.scaled_sum, *start = a + row.start;
  __m512 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  for (std::size_t k = 0; k < matrix.k; k += kUnit.k, unit += unit_bytes(kUnit)) {
    const typename Type::UnitScales scales{unit};
    const std::size_t groups = kUnit.k == 256 || matrix.k - k >= kUnit.k ? kUnit.k / 32 : (matrix.k - k) / 32;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::byte* lines = unit + kUnit.header + g * run_bytes(kUnit);
      constexpr std::size_t kGroupBytes = unit_bytes(kUnit) / (kUnit.k / 32);
      if (ahead != 0) prefetch_lines<lines_of(kGroupBytes)>(unit + g * kGroupBytes + ahead);
      typename Dot::template Sum<Type> products[R][2];  // of quads 0 to 3 and 4 to 7
      Type::UnpackCodes::for_each_quad(bytes(lines), [&](int q, __m512i line) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
          products[r][q / 4].add(q % 4, line, _mm512_set1_epi32(int_at(codes + r * row.stride + 4 * q)));
      });
#pragma GCC unroll 2
      for (int half = 0; half < kRunsPerGroup; ++half) {
        const std::size_t run = g * kRunsPerGroup + static_cast<std::size_t>(half);
        const __m512 d = scales.d(run);
        __m512 min{};
        if constexpr (Type::kHasMin) min = scales.min(run);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const std::byte* run_start_at = start + r * row.stride + 4 * half;
          __m512i total = _mm512_add_epi32(run_start<Dot, Type, false>(run_start_at), products[r][half].total());
          if constexpr (kRunsPerGroup == 1) total = _mm512_add_epi32(total, products[r][1].total());
          const __m512 da = _mm512_set1_ps(float_at(scale + r * row.stride));
          sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_mul_ps(d, da), sums[r]);
          if constexpr (Type::kHasMin)
            sums[r] =
                _mm512_fnmadd_ps(min, scaled_sum_of<Type>(scaled_sum + r * row.stride, run_start_at, da), sums[r]);
        }
      }
      codes += 32;
      scale += 4;
      scaled_sum += 4;
      start += 4 * kRunsPerGroup;
    }
  }
  store_few<R>(sums, matrix, panel, out, out_stride);
}

// The same for ternary types.
template <class Dot, class Type, int R>
requires(Type::kRow256) TROUPE_UNCHECKED
    void multiply_few(const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
                      std::size_t ahead, float* out, std::size_t out_stride) {
  constexpr int kChains = 4;
  const std::byte* weights = matrix.body + panel * Type::panel_bytes(matrix.k);
  __m512 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  for (std::size_t block = 0; block * kBlockK < matrix.k; ++block) {
    __m512i chains[R][kChains];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < kChains; ++c) chains[r][c] = _mm512_setzero_si512();
    const std::byte* codes = a + kBlockK * block;
    if (ahead != 0) prefetch_lines<lines_of(Type::kBlockBytes)>(Type::lines(weights, block) + ahead);
    Type::for_each_quad(Type::lines(weights, block), [&](std::size_t first, std::size_t i, __m512i line) {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        __m512i& chain = chains[r][i % kChains];
        chain = Dot::add_line(chain, line, _mm512_set1_epi32(int_at(codes + r * row.stride + 4 * (first + i))));
      }
    });
    const __m512 d = Type::d(weights, block);
    for (int r = 0; r < R; ++r) {
      const std::byte* of_row = a + r * row.stride + 4 * block;
      __m512i total = _mm512_set1_epi32(int_at(of_row + row.start));
      for (int c = 0; c < kChains; ++c) total = _mm512_add_epi32(total, Dot::to_int32(chains[r][c]));
      const __m512 da = _mm512_set1_ps(float_at(of_row + row.scale));
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_mul_ps(d, da), sums[r]);
    }
  }
  store_few<R>(sums, matrix, panel, out, out_stride);
}

// One panel, for any number of rows. A single row is left to the CPU's own prefetcher. Several are multiplied more
// slowly than it runs ahead: a single tile of them prefetches its own stream, and of several tiles, of which the later
// ones find the panel in a cache, the last one prefetches the next panel.
template <class Dot, class Type, int R = kFewTile>
void multiply_few_rows(const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
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
  if (num_rows <= kFewRows) {
    for (std::size_t panel = panel_begin; panel < panel_end; ++panel)
      multiply_few_rows<Dot, Type>(matrix, panel, prepared, row, num_rows, true, out, out_stride);
    return;
  }
  for (std::size_t begin = 0; begin < num_rows; begin += kBlockRows) {
    const std::size_t rows = num_rows - begin < kBlockRows ? num_rows - begin : kBlockRows;
    const std::byte* a = prepared + begin * row.stride;
    std::size_t panel = panel_begin;
    for (; panel + kMaxPanels <= panel_end; panel += kMaxPanels)
      multiply_panels<Dot, Type, kMaxPanels>(matrix, panel, a, row, rows, out + begin * out_stride, out_stride);
    if (panel < panel_end)
      multiply_panels<Dot, Type, 1>(matrix, panel, a, row, rows, out + begin * out_stride, out_stride);
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
}  // namespace troupe::kernels::int8_512
