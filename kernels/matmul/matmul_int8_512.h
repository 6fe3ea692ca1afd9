// Matrix products of quantized weights with int8 activations in vectors of 64 bytes, for avx512 and avx512vnni.
//
// Blocks of 256 k of two panels are unpacked to unsigned bytes on the stack (Q8_0 is read in place) and multiplied with
// row tiles of 6 rows: with VNNI 12 int32 and 12 float32 accumulators, one broadcast of an activation quad serves two
// `vpdpbusd`. The float32 chains of up to 48 rows are kept in an L1-sized buffer while the next block is unpacked, so
// unpacking costs some 7 % of a large product, and a single row streams the weights once at memory speed. Every output
// goes through the same instructions for any row tile.
//
// The variant defines how bytes are multiplied, in a struct `Dot`:
//   kAnyByte    any unsigned byte can be multiplied: codes are raised to the offset of 128, for which a row's `start`
//               is; else 8-bit codes are made signed: their sums start at zero
//   kStepQuads  the most quads of one multiply_quads
//   kChains<n>  int32 sums per output if n vectors of outputs are multiplied at once
//   multiply_quads<Type, kQuads>(blocks, line, codes, stride, chains)  adds the products of kQuads quads to
//               chains[p][r]: P panels from `line` on, R rows from `codes` on
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
// A few rows are multiplied faster than weights arrive: memory must not idle while a block is multiplied. Prefetches
// 2-4 KiB ahead, spread over the block's runs, raise one row of Q4_K from 11.9 to 15.3 GB/s; plain reading reaches
// 16.3.
constexpr int kPrefetchRows = 4;
constexpr std::size_t kPrefetchBytes = 2048;

// One panel's part of a block, ready to multiply.
struct alignas(64) Block {
  std::uint8_t lines[kBlockK / 4 * kLine];
  float d[kBlockK / 16][16];    // scale per run
  float min[kBlockK / 16][16];  // for types with a min
  const std::uint8_t* first;    // `lines`, or the packed lines themselves
  const std::byte* ahead;       // address to prefetch while this block is multiplied
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

// A type defines how a block is unpacked, beside the constants of Int8Type:
//   kPairGap  bytes between pairs of runs
// If kAnyByte, codes with an offset are raised to an offset of 128: kStartShift does not matter.

// Read in place.
struct Q8_0 : Int8Type<Codes<scales::Halves, 8, Minus<128>>> {
  static constexpr PanelUnit kUnit = Packing::kPanelUnit;
  static constexpr std::size_t kPairGap = kLine;  // the scales between pairs of groups
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    const std::byte* unit = panel + block * kBlockBytes;
    out.first = bytes(unit) + kLine;
    for (std::size_t g = 0; g < num_groups; ++g)
      _mm512_store_ps(out.d[g], load_halves(unit + g / 2 * unit_bytes(kUnit) + g % 2 * 32));
  }
};

// ---- Codes -----------------------------------------------------------------------------------------------------
//
// unpack<Dot>(from, to): unpacks the lines of a run of 32 to eight lines of bytes, raised if kAnyByte.

inline __m512i each_byte(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
// (a & b) | c
inline __m512i and_or(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0xea); }
// Shifts by -7 to 7 places, to the left or, below 0, to the right. Bits of the neighbouring byte shift in, too.
inline __m512i shift_left(__m512i x, int places) {
  return places < 0 ? _mm512_srli_epi16(x, static_cast<unsigned>(-places))
                    : _mm512_slli_epi16(x, static_cast<unsigned>(places));
}

// The addend that raises codes of this offset to an offset of 128; 0 for codes without offset.
template <class Dot>
inline __m512i lift_from(int offset) {
  return Dot::kAnyByte && offset != 0 ? each_byte(kSumOffset - offset) : _mm512_setzero_si512();
}

template <int bits, class Values>
struct UnpackCodes;

template <int offset>
struct UnpackCodes<4, Minus<offset>> {
  template <class Dot>
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m512i low_mask = each_byte(15), lift = lift_from<Dot>(offset);
    for (int j = 0; j < 4; ++j) {
      const __m512i line = load_line(from + j * kLine);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask);
      _mm512_store_si512(to + j * kLine, _mm512_add_epi8(_mm512_and_si512(line, low_mask), lift));
      _mm512_store_si512(to + (j + 4) * kLine, _mm512_add_epi8(high, lift));
    }
  }
};

template <int offset>
struct UnpackCodes<5, Minus<offset>> {
  template <class Dot>
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m512i low_mask = each_byte(15), bit = each_byte(16), lift = lift_from<Dot>(offset);
    const __m512i fifths = load_line(from);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {  // bit q of `fifths` moves to bit 4
      const __m512i line = load_line(from + (j + 1) * kLine);
      const __m512i low = and_or(shift_left(fifths, 4 - j), bit, _mm512_and_si512(line, low_mask));
      const __m512i high = and_or(shift_left(fifths, -j), bit, _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask));
      _mm512_store_si512(to + j * kLine, _mm512_add_epi8(low, lift));
      _mm512_store_si512(to + (j + 4) * kLine, _mm512_add_epi8(high, lift));
    }
  }
};

template <int offset>
struct UnpackCodes<6, Minus<offset>> {
  template <class Dot>
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m512i low_mask = each_byte(15), bits = each_byte(0x30), lift = lift_from<Dot>(offset);
    const __m512i low_upper = load_line(from), high_upper = load_line(from + kLine);  // for quads 0-3 and 4-7
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i line = load_line(from + (j + 2) * kLine);
      const __m512i low = and_or(shift_left(low_upper, 4 - 2 * j), bits, _mm512_and_si512(line, low_mask));
      const __m512i high =
          and_or(shift_left(high_upper, 4 - 2 * j), bits, _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask));
      _mm512_store_si512(to + j * kLine, _mm512_add_epi8(low, lift));
      _mm512_store_si512(to + (j + 4) * kLine, _mm512_add_epi8(high, lift));
    }
  }
};

// Nibbles that index a table of values.
template <const std::int8_t (&values)[16]>
struct UnpackCodes<4, Among<values>> {
  static constexpr int offset = Among<values>::kOffset;
  template <class Dot>
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m512i low_mask = each_byte(15);
    const __m512i table =
        _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values))),
                        _mm512_add_epi8(each_byte(offset), lift_from<Dot>(offset)));
    for (int j = 0; j < 4; ++j) {
      const __m512i line = load_line(from + j * kLine);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask);
      _mm512_store_si512(to + j * kLine, _mm512_shuffle_epi8(table, _mm512_and_si512(line, low_mask)));
      _mm512_store_si512(to + (j + 4) * kLine, _mm512_shuffle_epi8(table, high));
    }
  }
};

template <>
struct UnpackCodes<2, Minus<0>> {
  template <class Dot>
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m512i mask = each_byte(3);
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q)
      _mm512_store_si512(to + q * kLine,
                         _mm512_and_si512(shift_left(load_line(from + q / 4 * kLine), -2 * (q % 4)), mask));
  }
};

template <int offset>
struct UnpackCodes<3, Minus<offset>> {
  template <class Dot>
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m512i mask = each_byte(3), bit = each_byte(4), lift = lift_from<Dot>(offset);
    const __m512i thirds = load_line(from);
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {  // bit q of `thirds` moves to bit 2
      const __m512i two = _mm512_and_si512(shift_left(load_line(from + (1 + q / 4) * kLine), -2 * (q % 4)), mask);
      _mm512_store_si512(to + q * kLine, _mm512_add_epi8(and_or(shift_left(thirds, 2 - q), bit, two), lift));
    }
  }
};

// ---- Scales ----------------------------------------------------------------------------------------------------
//
// unpack(block, unit_bytes, num_groups, out): the scales, and mins, of the units of a block.

template <class Scales>
struct UnpackScales;

// Float16 scales per 32 k, two to a unit.
template <bool has_min>
struct Halves {
  static void unpack(const std::byte* block, std::size_t unit_bytes, std::size_t num_groups, Block& out) {
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = block + g / 2 * unit_bytes;
      _mm512_store_ps(out.d[g], load_halves(unit + g % 2 * 32));
      if constexpr (has_min) _mm512_store_ps(out.min[g], load_halves(unit + kLine + g % 2 * 32));
    }
  }
};
template <>
struct UnpackScales<scales::Halves> : Halves<false> {};
template <>
struct UnpackScales<scales::HalvesAndMins> : Halves<true> {};

// Exponents per 32 k, four to a unit. The scale is half the power of two, because kMXFP4Values are doubled. The
// smallest two would be denormal, and are zero.
template <>
struct UnpackScales<scales::Powers> {
  static void unpack(const std::byte* block, std::size_t unit_bytes, std::size_t num_groups, Block& out) {
    for (std::size_t g = 0; g < num_groups; ++g) {
      const auto* e = reinterpret_cast<const __m128i*>(block + g / 4 * unit_bytes + g % 4 * 16);
      const __m512i exponents = _mm512_cvtepu8_epi32(_mm_subs_epu8(_mm_loadu_si128(e), _mm_set1_epi8(1)));
      _mm512_store_si512(out.d[g], _mm512_slli_epi32(exponents, 23));
    }
  }
};

// An int8 scale for each run of 8 or of 4 quads, times a float16 per 256 k.
template <std::size_t count>
struct UnpackScales<scales::SignedScales<count>> {
  static void unpack(const std::byte* unit, std::size_t, std::size_t, Block& out) {
    const __m512 d = load_halves(unit);
    for (std::size_t run = 0; run < count; ++run)
      _mm512_store_ps(out.d[run], _mm512_mul_ps(d, signed_bytes_to_floats(bytes(unit) + kRunScales + 16 * run)));
  }
};

// Q4_K, Q5_K.
template <>
struct UnpackScales<scales::RunsAndMins> {
  static void unpack(const std::byte* unit, std::size_t, std::size_t, Block& out) {
    const __m512 d = load_halves(unit), dmin = load_halves(unit + kMinOffset);
    for (int run = 0; run < 8; ++run) {
      _mm512_store_ps(out.d[run], _mm512_mul_ps(d, bytes_to_floats(bytes(unit) + kRunScales + 16 * run)));
      _mm512_store_ps(out.min[run], _mm512_mul_ps(dmin, bytes_to_floats(bytes(unit) + kRunMins + 16 * run)));
    }
  }
};

// Q2_K: scale and min in one byte.
template <>
struct UnpackScales<scales::HalfRunsAndMins> {
  static void unpack(const std::byte* unit, std::size_t, std::size_t, Block& out) {
    const __m512 d = load_halves(unit), dmin = load_halves(unit + kMinOffset);
    const __m512i low_mask = _mm512_set1_epi32(15);
    for (int run = 0; run < 16; ++run) {
      const auto* from = reinterpret_cast<const __m128i*>(bytes(unit) + kRunScales + 16 * run);
      const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
      _mm512_store_ps(out.d[run], _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_and_si512(both, low_mask))));
      _mm512_store_ps(out.min[run], _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4))));
    }
  }
};

// ---- Types -----------------------------------------------------------------------------------------------------

template <class Packing>
struct Units : Int8Type<Packing> {
  static constexpr PanelUnit unit = Packing::kPanelUnit;
  static constexpr std::size_t kPairGap = 0;
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    constexpr std::size_t kUnitRuns = unit.k / 32;
    const std::byte* from = panel + block * Units::kBlockBytes;
    out.first = out.lines;
    UnpackScales<typename Packing::Scales>::unpack(from, unit_bytes(unit), num_groups, out);
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* runs = from + g / kUnitRuns * unit_bytes(unit) + unit.header;
      UnpackCodes<Packing::kBits, typename Packing::Values>::template unpack<Dot>(
          bytes(runs) + g % kUnitRuns * run_bytes(unit), out.lines + g * 8 * kLine);
    }
  }
};

struct TQ : Int8Type<Ternary> {
  static constexpr std::size_t kPairGap = 0;
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    const std::byte* unit = panel + block * kTQUnit;
    out.first = out.lines;
    _mm512_store_ps(out.d[0], load_halves(unit));
    const __m512i mask = _mm512_set1_epi8(3);
    for (int j = 0; j < 16; ++j) {
      const __m512i line = load_line(bytes(unit) + kLine + j * kLine);
      std::uint8_t* to = out.lines + j * 4 * kLine;
      _mm512_store_si512(to, _mm512_and_si512(line, mask));
      _mm512_store_si512(to + kLine, _mm512_and_si512(_mm512_srli_epi16(line, 2), mask));
      _mm512_store_si512(to + 2 * kLine, _mm512_and_si512(_mm512_srli_epi16(line, 4), mask));
      _mm512_store_si512(to + 3 * kLine, _mm512_and_si512(_mm512_srli_epi16(line, 6), mask));
    }
  }
};

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

// Prefetches part `part` of `num_parts` of the block ahead, for P panels.
template <class Type, int P, std::size_t num_parts>
inline void prefetch_part(const Block* blocks, std::size_t part) {
  constexpr std::size_t kLines = (Type::kBlockBytes / kLine + num_parts - 1) / num_parts;
  for (std::size_t i = part * kLines; i < (part + 1) * kLines; ++i)
    for (int p = 0; p < P; ++p) _mm_prefetch(reinterpret_cast<const char*>(blocks[p].ahead + i * kLine), _MM_HINT_T0);
}

// The start of a run's integer sum: minus the codes' offset times the sum of the activations.
template <class Dot, class Type>
inline __m512i run_start(const std::byte* start) {
  if constexpr (Type::kStartShift < 0 || (Type::kWide && !Dot::kAnyByte))
    return _mm512_setzero_si512();
  else if constexpr (Dot::kAnyByte)
    return _mm512_set1_epi32(int_at(start));
  else
    return _mm512_srai_epi32(_mm512_set1_epi32(int_at(start)), Type::kStartShift);
}

// Disables UBSan here: with checks on each of the thousands of loads of a product, clang 14 takes minutes. ASan stays
// on.
#define TROUPE_UNCHECKED __attribute__((no_sanitize("undefined")))

// acc[r][p] += one block, for R rows from `a` on and P panels.
template <class Dot, class Type, int P, int R>
TROUPE_UNCHECKED inline void multiply_tile(const Block* blocks, const std::byte* a, const RowLayout& row,
                                           std::size_t block, std::size_t num_runs, float* acc) {
  constexpr std::size_t kRunsPerBlock = kBlockK / 4 / Type::kRunQuads;
  constexpr std::size_t kRunsPerScale = Type::kRunQuads == 4 ? 2 : 1;
  constexpr int kStep = Type::kRunQuads < Dot::kStepQuads ? Type::kRunQuads : Dot::kStepQuads;
  constexpr std::size_t kParts = kBlockK / 4 / kStep;
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
    __m512i chains[P][R][kChains];
    for (int p = 0; p < P; ++p)
      for (int r = 0; r < R; ++r) {
        chains[p][r][0] = run_start<Dot, Type>(start + r * row.stride + 4 * run);
        for (int c = 1; c < kChains; ++c) chains[p][r][c] = _mm512_setzero_si512();
      }
    for (int quad = 0; quad < Type::kRunQuads; quad += kStep) {
      if constexpr (R <= kPrefetchRows)
        prefetch_part<Type, P, kParts>(blocks, run * (kParts / kRunsPerBlock) + static_cast<std::size_t>(quad / kStep));
      Dot::template multiply_quads<Type, kStep>(blocks, line, codes, row.stride, chains);
      line += kStep * kLine;
      codes += 4 * kStep;
    }
    if constexpr (Type::kPairGap != 0) line += run % 2 * Type::kPairGap;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 da = _mm512_set1_ps(float_at(scale + r * row.stride + run / kRunsPerScale * 4));
      __m512 scaled_sum{};  // of activations
      if constexpr (Type::kHasMin && kRunsPerScale == 1)
        scaled_sum = _mm512_set1_ps(float_at(scaled_sums + r * row.stride + run * 4));
      else if constexpr (Type::kHasMin)
        scaled_sum = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_set1_epi32(int_at(start + r * row.stride + run * 4))),
                                   _mm512_mul_ps(da, _mm512_set1_ps(kPerStart)));
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
template <class Dot, class Type, int P, int R>
inline void multiply_rest(const Block* blocks, const std::byte* a, const RowLayout& row, std::size_t block,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  if constexpr (R > 0) {
    if (num_rows == R) return multiply_tile<Dot, Type, P, R>(blocks, a, row, block, num_runs, acc);
    multiply_rest<Dot, Type, P, R - 1>(blocks, a, row, block, num_runs, num_rows, acc);
  }
}

template <class Dot, class Type, int P>
inline void multiply_rows(const Block* blocks, const std::byte* a, const RowLayout& row, std::size_t block,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  while (num_rows >= kTileRows) {
    multiply_tile<Dot, Type, P, kTileRows>(blocks, a, row, block, num_runs, acc);
    a += kTileRows * row.stride;
    acc += kTileRows * P * 16;
    num_rows -= kTileRows;
  }
  multiply_rest<Dot, Type, P, kTileRows - 1>(blocks, a, row, block, num_runs, num_rows, acc);
}

// P panels from `panel` on, for at most kBlockRows rows.
template <class Dot, class Type, int P>
void multiply_panels(const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
                     std::size_t num_rows, float* out, std::size_t out_stride) {
  constexpr std::size_t kBlocksAhead = (kPrefetchBytes + Type::kBlockBytes - 1) / Type::kBlockBytes;
  const std::size_t panel_bytes = Type::panel_bytes(matrix.k);
  Block blocks[P];
  alignas(64) float acc[kBlockRows * P * 16];
  for (std::size_t i = 0; i < num_rows * P * 16; i += 16) _mm512_store_ps(acc + i, _mm512_setzero_ps());
  for (std::size_t block = 0; block * kBlockK < matrix.k; ++block) {
    const std::size_t rest = matrix.k - block * kBlockK;
    const std::size_t count = rest < kBlockK ? rest : kBlockK;
    for (int p = 0; p < P; ++p) {
      const std::byte* weights = matrix.body + (panel + static_cast<std::size_t>(p)) * panel_bytes;
      blocks[p].ahead = weights + (block + kBlocksAhead) * Type::kBlockBytes;  // may be past the end: only prefetched
      Type::template unpack<Dot>(weights, block, count / 32, blocks[p]);
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

template <class Dot, class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const RowLayout row = row_layout<Type>(matrix.k);
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
  sizeof(UnpackScales<typename Packing::Scales>);
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
    else if constexpr (std::is_same_v<Packing, Q8_0::Packing>)
      return multiply<Dot, Q8_0>;
    else if constexpr (Unpacked<Packing>)
      return multiply<Dot, Units<Packing>>;
    else
      return nullptr;
  });
}

}  // namespace
}  // namespace troupe::kernels::int8_512
