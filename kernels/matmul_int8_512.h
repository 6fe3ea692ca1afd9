// Matrix products of quantized weights with int8 activations in vectors of 64 bytes, for avx512 and avx512vnni.
//
// Blocks of 256 k of two panels are unpacked to unsigned bytes on the stack (Q8_0 is read in place) and
// multiplied with tiles of 6 rows: with VNNI 12 int32 and 12 float32 accumulators, one broadcast of an
// activation quad serves two `vpdpbusd`. The float32 chains of up to 48 rows wait in an L1-sized buffer while
// the next block is unpacked, so unpacking costs some 7 % of a large product, and a single row streams the
// weights once at memory speed. Every output goes through the same instructions whatever the tile.
//
// How bytes are multiplied is the variant's, a struct `Dot`:
//   kAnyByte    any unsigned byte can be multiplied: codes are lifted to the offset of 128, for which a row's `start`
//               is; else 8-bit codes are made signed: their sums start at zero
//   kStepQuads  most quads of one multiply_quads
//   kChains<n>  int32 sums per output where n vectors of outputs are multiplied at once
//   multiply_quads<Type, kQuads>(blocks, line, codes, stride, chains)  adds the products of kQuads quads to
//               chains[p][r]: P panels from `line` on, R rows from `codes` on
//
// Everything is of internal linkage: each file that includes this has its own, in its own instruction set.
#pragma once

#include <immintrin.h>

#include "kernels/groups.h"
#include "kernels/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::int8_512 {
namespace {

using namespace layout;

constexpr int kTileRows = 6;
constexpr std::size_t kBlockRows = 48;
constexpr std::size_t kBlockK = 256;
constexpr int kMaxPanels = 2;
// A few rows are multiplied faster than weights arrive: memory must not idle while a block is multiplied.
// Prefetches of what comes 2-4 KiB later, spread over its runs, take one row of Q4_K from 11.9 to 15.3 GB/s
// where plain reading reaches 16.3.
constexpr int kPrefetchRows = 4;
constexpr std::size_t kPrefetchBytes = 2048;

// One panel's part of a block, ready to multiply.
struct alignas(64) Block {
  std::uint8_t lines[kBlockK / 4 * kLine];
  float d[kBlockK / 16][16];    // scale per run
  float min[kBlockK / 32][16];  // Q4_1, Q4_K, Q5_K
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

// What lifts codes of this offset to one of 128.
template <class Dot>
inline __m512i lift_from(int offset) {
  return Dot::kAnyByte ? _mm512_set1_epi8(static_cast<char>(kSumOffset - offset)) : _mm512_setzero_si512();
}

// Nibble line j of a run: quads j and j + 4, plus `add`.
inline void unpack_nibbles(const std::uint8_t* from, std::uint8_t* to, __m512i add) {
  const __m512i low_mask = _mm512_set1_epi8(15);
  for (int j = 0; j < 4; ++j) {
    const __m512i line = load_line(from + j * kLine);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask);
    _mm512_store_si512(to + j * kLine, _mm512_add_epi8(_mm512_and_si512(line, low_mask), add));
    _mm512_store_si512(to + (j + 4) * kLine, _mm512_add_epi8(high, add));
  }
}

// A type says how a block is unpacked and how its codes are multiplied:
//   kRunQuads     quads that share a scale: an exact integer run
//   kNarrowQuads  quads whose `vpmaddubsw` results (at most 2 * 127 * largest code each) add up in int16
//   kWide         codes of 8 bits, offset 128: two products of theirs would not fit into int16
//   kStartShift   how much smaller, as a power of two, the codes' offset is than the one a row's `start` is
//                 for, unless they are lifted; -1: no offset
//   kPairGap      bytes between pairs of runs

struct Q8_0 {
  static constexpr std::size_t kBlockBytes = 4 * kQ8_0Unit;
  static constexpr int kRunQuads = 8, kNarrowQuads = 1, kStartShift = 0;
  static constexpr bool kWide = true, kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = kLine;  // scales lie between pairs of groups
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ8_0Unit; }
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    const std::byte* unit = panel + block * 4 * kQ8_0Unit;
    out.first = bytes(unit) + kLine;
    for (std::size_t g = 0; g < num_groups; ++g)
      _mm512_store_ps(out.d[g], load_halves(unit + g / 2 * kQ8_0Unit + g % 2 * 32));
  }
};

struct Q4_0 {
  static constexpr std::size_t kBlockBytes = 4 * kQ4_0Unit;
  static constexpr int kRunQuads = 8, kNarrowQuads = 8, kStartShift = 4;
  static constexpr bool kWide = false, kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_0Unit; }
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    out.first = out.lines;
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = panel + (block * 4 + g / 2) * kQ4_0Unit;
      _mm512_store_ps(out.d[g], load_halves(unit + g % 2 * 32));
      unpack_nibbles(bytes(unit) + kLine + g % 2 * 4 * kLine, out.lines + g * 8 * kLine, lift_from<Dot>(8));
    }
  }
};

struct Q4_1 {
  static constexpr std::size_t kBlockBytes = 4 * kQ4_1Unit;
  static constexpr int kRunQuads = 8, kNarrowQuads = 8, kStartShift = -1;
  static constexpr bool kWide = false, kHasMin = true, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_1Unit; }
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    out.first = out.lines;
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = panel + (block * 4 + g / 2) * kQ4_1Unit;
      _mm512_store_ps(out.d[g], load_halves(unit + g % 2 * 32));
      _mm512_store_ps(out.min[g], load_halves(unit + kLine + g % 2 * 32));
      unpack_nibbles(bytes(unit) + 2 * kLine + g % 2 * 4 * kLine, out.lines + g * 8 * kLine, _mm512_setzero_si512());
    }
  }
};

struct IQ4_NL {
  static constexpr std::size_t kBlockBytes = 4 * kQ4_0Unit;
  static constexpr int kRunQuads = 8, kNarrowQuads = 1, kStartShift = 0;
  static constexpr bool kWide = true, kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_0Unit; }
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    out.first = out.lines;
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = panel + (block * 4 + g / 2) * kQ4_0Unit;
      _mm512_store_ps(out.d[g], load_halves(unit + g % 2 * 32));
      look_up_nibbles(bytes(unit) + kLine + g % 2 * 4 * kLine, out.lines + g * 8 * kLine);
    }
  }
  static void look_up_nibbles(const std::uint8_t* from, std::uint8_t* to) {
    const __m512i low_mask = _mm512_set1_epi8(15);
    const __m512i values =
        _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIQ4_NLValues))),
                         _mm512_set1_epi8(-128));  // + 128
    for (int j = 0; j < 4; ++j) {
      const __m512i line = load_line(from + j * kLine);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask);
      _mm512_store_si512(to + j * kLine, _mm512_shuffle_epi8(values, _mm512_and_si512(line, low_mask)));
      _mm512_store_si512(to + (j + 4) * kLine, _mm512_shuffle_epi8(values, high));
    }
  }
};

inline void unpack_scales_and_mins(const std::byte* unit, Block& out) {
  const __m512 d = load_halves(unit), dmin = load_halves(unit + kMinOffset);
  for (int run = 0; run < 8; ++run) {
    _mm512_store_ps(out.d[run], _mm512_mul_ps(d, bytes_to_floats(bytes(unit) + kRunScales + 16 * run)));
    _mm512_store_ps(out.min[run], _mm512_mul_ps(dmin, bytes_to_floats(bytes(unit) + kRunMins + 16 * run)));
  }
}

struct Q4_K {
  static constexpr std::size_t kBlockBytes = kQ4_KUnit;
  static constexpr int kRunQuads = 8, kNarrowQuads = 8, kStartShift = -1;
  static constexpr bool kWide = false, kHasMin = true, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kQ4_KUnit; }
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    const std::byte* unit = panel + block * kQ4_KUnit;
    out.first = out.lines;
    unpack_scales_and_mins(unit, out);
    for (int run = 0; run < 8; ++run)
      unpack_nibbles(bytes(unit) + kRuns + run * kQ4_KRun, out.lines + run * 8 * kLine, _mm512_setzero_si512());
  }
};

struct Q5_K {
  static constexpr std::size_t kBlockBytes = kQ5_KUnit;
  static constexpr int kRunQuads = 8, kNarrowQuads = 4, kStartShift = -1;
  static constexpr bool kWide = false, kHasMin = true, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kQ5_KUnit; }
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    const std::byte* unit = panel + block * kQ5_KUnit;
    out.first = out.lines;
    unpack_scales_and_mins(unit, out);
    const __m512i low_mask = _mm512_set1_epi8(15), bit = _mm512_set1_epi8(16);
    for (int run = 0; run < 8; ++run) {
      const std::uint8_t* from = bytes(unit) + kRuns + run * kQ5_KRun;
      std::uint8_t* to = out.lines + run * 8 * kLine;
      const __m512i high = load_line(from);
      for (int j = 0; j < 4; ++j) {  // bit q of `high` moves to bit 4; 0xea is (a & b) | c
        const __m512i line = load_line(from + (j + 1) * kLine);
        const __m512i low_quad = _mm512_slli_epi16(high, static_cast<unsigned>(4 - j));
        const __m512i high_quad = _mm512_srli_epi16(high, static_cast<unsigned>(j));
        _mm512_store_si512(to + j * kLine,
                           _mm512_ternarylogic_epi32(low_quad, bit, _mm512_and_si512(line, low_mask), 0xea));
        _mm512_store_si512(
            to + (j + 4) * kLine,
            _mm512_ternarylogic_epi32(high_quad, bit, _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask), 0xea));
      }
    }
  }
};

struct Q6_K {
  static constexpr std::size_t kBlockBytes = kQ6_KUnit;
  static constexpr int kRunQuads = 4, kNarrowQuads = 2, kStartShift = 2;
  static constexpr bool kWide = false, kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kQ6_KUnit; }
  template <class Dot>
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    const std::byte* unit = panel + block * kQ6_KUnit;
    out.first = out.lines;
    const __m512 d = load_halves(unit);
    for (int run = 0; run < 16; ++run)
      _mm512_store_ps(out.d[run], _mm512_mul_ps(d, signed_bytes_to_floats(bytes(unit) + kRunScales + 16 * run)));
    const __m512i low_mask = _mm512_set1_epi8(15), bits = _mm512_set1_epi8(0x30);
    const __m512i add = lift_from<Dot>(32);
    for (int pair = 0; pair < 8; ++pair) {
      const std::uint8_t* from = bytes(unit) + kRuns + pair * kQ6_KRun;
      std::uint8_t* to = out.lines + pair * 8 * kLine;
      const __m512i low_high = load_line(from), high_high = load_line(from + kLine);  // of quads 0-3 and 4-7
      const __m512i shifted_low[4] = {_mm512_slli_epi16(low_high, 4), _mm512_slli_epi16(low_high, 2), low_high,
                                      _mm512_srli_epi16(low_high, 2)};
      const __m512i shifted_high[4] = {_mm512_slli_epi16(high_high, 4), _mm512_slli_epi16(high_high, 2), high_high,
                                       _mm512_srli_epi16(high_high, 2)};
      for (int j = 0; j < 4; ++j) {
        const __m512i line = load_line(from + (j + 2) * kLine);
        const __m512i low = _mm512_and_si512(line, low_mask);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask);
        const __m512i low_quad = _mm512_ternarylogic_epi32(shifted_low[j], bits, low, 0xea);
        const __m512i high_quad = _mm512_ternarylogic_epi32(shifted_high[j], bits, high, 0xea);
        _mm512_store_si512(to + j * kLine, _mm512_add_epi8(low_quad, add));
        _mm512_store_si512(to + (j + 4) * kLine, _mm512_add_epi8(high_quad, add));
      }
    }
  }
};

struct TQ {
  static constexpr std::size_t kBlockBytes = kTQUnit;
  static constexpr int kRunQuads = 64, kNarrowQuads = 32, kStartShift = 0;
  static constexpr bool kWide = false, kHasMin = false, kRow256 = true;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 255) / 256 * kTQUnit; }
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

// Where the parts of a prepared row lie, for either form.
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

// Prefetches part `part` of `num_parts` of what lies ahead of P panels.
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

// Checks of undefined behaviour on each of the thousands of loads of a product take clang 14 minutes; addresses stay
// checked.
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
  const std::byte* scaled_sum = a + row.scaled_sum + block * kRunsPerBlock * 4;
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
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) {
        __m512i total = chains[p][r][0];
        for (int c = 1; c < kChains; ++c) total = _mm512_add_epi32(total, chains[p][r][c]);
        const __m512 d = _mm512_mul_ps(_mm512_load_ps(blocks[p].d[run]), da);
        sums[p][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), d, sums[p][r]);
        if constexpr (Type::kHasMin)
          sums[p][r] = _mm512_fnmadd_ps(_mm512_load_ps(blocks[p].min[run]),
                                        _mm512_set1_ps(float_at(scaled_sum + r * row.stride + run * 4)), sums[p][r]);
      }
    }
  }
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) _mm512_store_ps(acc + (r * P + p) * 16, sums[p][r]);
}

// The rows behind the last tile: R or fewer.
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
      blocks[p].ahead = weights + (block + kBlocksAhead) * Type::kBlockBytes;  // past the end: only a prefetch
      Type::template unpack<Dot>(weights, block, count / 32, blocks[p]);
    }
    constexpr std::size_t kRun = 4 * Type::kRunQuads;  // TQ's last one may be shorter: zeros fill it up
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

// The product of a type; nullptr for types without codes.
template <class Dot>
Matmul* matmul_of(WeightType type) {
  switch (type) {
    case WeightType::q8_0:
      return multiply<Dot, Q8_0>;
    case WeightType::q4_0:
      return multiply<Dot, Q4_0>;
    case WeightType::q4_1:
      return multiply<Dot, Q4_1>;
    case WeightType::iq4_nl:
      return multiply<Dot, IQ4_NL>;
    case WeightType::q4_k:
      return multiply<Dot, Q4_K>;
    case WeightType::q5_k:
      return multiply<Dot, Q5_K>;
    case WeightType::q6_k:
      return multiply<Dot, Q6_K>;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return multiply<Dot, TQ>;
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
      break;
  }
  return nullptr;
}

}  // namespace
}  // namespace troupe::kernels::int8_512
