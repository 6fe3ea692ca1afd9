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
//   multiply_run<Type, R>(run, codes, stride, sums)  sums[r][h] += the integer products of one run: 8 outputs
//              per half h, for R rows from `codes` on
//
// Everything has internal linkage: each file that includes this has its own copy, in its own instruction set.
#pragma once

#include <immintrin.h>

#include "kernels/formats/groups.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::int8_256 {
namespace {

using namespace layout;

constexpr std::size_t kBlockRows = 48;
constexpr std::size_t kBlockK = 256;
// A single row is multiplied faster than weights arrive from memory: prefetches this far ahead.
constexpr std::size_t kPrefetchBytes = 2048;
constexpr std::size_t kHalf = kLine / 2;  // half a line: one vector, 8 rows

// One panel's part of a block, ready to multiply.
struct alignas(64) Block {
  std::uint8_t lines[kBlockK / 4 * kLine];
  float d[kBlockK / 16][16];              // scale per run
  float min[kBlockK / 16][16];            // for types with a min
  const std::uint8_t* run[kBlockK / 16];  // the codes of each run: in `lines` or in the packed lines
  const std::byte* ahead;                 // address to prefetch while this block is multiplied
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

// Converts the 16 scales of a group of a panel.
inline void unpack_halves(const std::byte* from, float* to) {
  _mm256_store_ps(to, halves_to_floats(from));
  _mm256_store_ps(to + 8, halves_to_floats(from + 16));
}

// A type defines how a block is unpacked and how its codes are multiplied:
//   kRunQuads     quads that share a scale: an exact integer run
//   kNarrowQuads  quads with `vpmaddubsw` results (at most 2 * 127 * largest code each) that add up in int16
//   kWide         codes of 8 bits, offset 128: the sum of two products would not fit into int16
//   kStartShift   log2 of the ratio of the offset that a row's `start` is for to the codes' offset; -1: no
//                 offset

struct Q8_0 {
  static constexpr std::size_t kBlockBytes = 4 * unit_bytes(kQ8_0);
  static constexpr int kRunQuads = 8, kNarrowQuads = 1, kStartShift = 0;
  static constexpr bool kWide = true, kHasMin = false, kRow256 = false;
  static std::size_t panel_bytes(std::size_t k) { return layout::panel_bytes(kQ8_0, k); }
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = panel + (block * 4 + g / 2) * unit_bytes(kQ8_0);
      unpack_halves(unit + g % 2 * 32, out.d[g]);
      out.run[g] = bytes(unit) + kLine + g % 2 * 8 * kLine;
    }
  }
};

// ---- Codes -----------------------------------------------------------------------------------------------------
//
// unpack(from, to): unpacks the lines of a run of 32 to eight lines of bytes. kNarrowQuads is for runs of eight quads;
// shorter runs are limited to their length.

inline __m256i each_byte(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
// Shifts by -7 to 7 places, to the left or, below 0, to the right. Bits of the neighbouring byte shift in, too.
inline __m256i shift_left(__m256i x, int places) {
  return places < 0 ? _mm256_srli_epi16(x, -places) : _mm256_slli_epi16(x, places);
}
// The bits of `mask` of the shifted x.
inline __m256i bits_of(__m256i x, int places, __m256i mask) { return _mm256_and_si256(shift_left(x, places), mask); }

template <int offset>
struct Fours {
  static constexpr int kNarrowQuads = 8, kStartShift = offset == 0 ? -1 : 4;
  static constexpr bool kWide = false;
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m256i low_mask = each_byte(15);
    for (std::size_t at = 0; at < 4 * kLine; at += kHalf) {
      const __m256i line = load_half_line(from + at);
      store_half_line(to + at, _mm256_and_si256(line, low_mask));
      store_half_line(to + at + 4 * kLine, bits_of(line, -4, low_mask));
    }
  }
};

template <int offset>
struct Fives {
  static constexpr int kNarrowQuads = 4, kStartShift = offset == 0 ? -1 : 3;
  static constexpr bool kWide = false;
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m256i low_mask = each_byte(15), bit = each_byte(16);
    for (std::size_t at = 0; at < kLine; at += kHalf) {
      const __m256i fifths = load_half_line(from + at);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {  // bit q of `fifths` moves to bit 4
        const std::size_t quad = static_cast<std::size_t>(j) * kLine + at;
        const __m256i line = load_half_line(from + kLine + quad);
        store_half_line(to + quad, _mm256_or_si256(_mm256_and_si256(line, low_mask), bits_of(fifths, 4 - j, bit)));
        store_half_line(to + quad + 4 * kLine, _mm256_or_si256(bits_of(line, -4, low_mask), bits_of(fifths, -j, bit)));
      }
    }
  }
};

struct Sixes {
  static constexpr int kNarrowQuads = 2, kStartShift = 2;
  static constexpr bool kWide = false;
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m256i low_mask = each_byte(15), bits = each_byte(0x30);
    for (std::size_t at = 0; at < kLine; at += kHalf) {
      const __m256i low_upper = load_half_line(from + at), high_upper = load_half_line(from + kLine + at);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const std::size_t quad = static_cast<std::size_t>(j) * kLine + at;
        const __m256i line = load_half_line(from + 2 * kLine + quad);
        store_half_line(to + quad,
                        _mm256_or_si256(_mm256_and_si256(line, low_mask), bits_of(low_upper, 4 - 2 * j, bits)));
        store_half_line(to + quad + 4 * kLine,
                        _mm256_or_si256(bits_of(line, -4, low_mask), bits_of(high_upper, 4 - 2 * j, bits)));
      }
    }
  }
};

// Nibbles that index a table of values; `offset` makes the values unsigned.
template <const std::int8_t (&values)[16], int offset, int narrow_quads>
struct LookedUp {
  static constexpr int kNarrowQuads = narrow_quads, kStartShift = offset == 128 ? 0 : 3;
  static constexpr bool kWide = offset == 128;
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m256i low_mask = each_byte(15);
    const __m256i table = _mm256_add_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values))), each_byte(offset));
    for (std::size_t at = 0; at < 4 * kLine; at += kHalf) {
      const __m256i line = load_half_line(from + at);
      store_half_line(to + at, _mm256_shuffle_epi8(table, _mm256_and_si256(line, low_mask)));
      store_half_line(to + at + 4 * kLine, _mm256_shuffle_epi8(table, bits_of(line, -4, low_mask)));
    }
  }
};
using NonLinear = LookedUp<kIQ4_NLValues, 128, 1>;
using Fp4 = LookedUp<kMXFP4Values, 16, 4>;  // 4 to 28

struct Twos {
  static constexpr int kNarrowQuads = 8, kStartShift = -1;
  static constexpr bool kWide = false;
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m256i mask = each_byte(3);
    for (std::size_t at = 0; at < kLine; at += kHalf)
#pragma GCC unroll 8
      for (int q = 0; q < 8; ++q) {
        const auto quad = static_cast<std::size_t>(q);
        store_half_line(to + quad * kLine + at,
                        bits_of(load_half_line(from + quad / 4 * kLine + at), -2 * (q % 4), mask));
      }
  }
};

struct Threes {
  static constexpr int kNarrowQuads = 8, kStartShift = 5;
  static constexpr bool kWide = false;
  static void unpack(const std::uint8_t* from, std::uint8_t* to) {
    const __m256i mask = each_byte(3), bit = each_byte(4);
    for (std::size_t at = 0; at < kLine; at += kHalf) {
      const __m256i thirds = load_half_line(from + at);
#pragma GCC unroll 8
      for (int q = 0; q < 8; ++q) {  // bit q of `thirds` moves to bit 2
        const auto quad = static_cast<std::size_t>(q);
        const __m256i line = load_half_line(from + (1 + quad / 4) * kLine + at);
        store_half_line(to + quad * kLine + at,
                        _mm256_or_si256(bits_of(line, -2 * (q % 4), mask), bits_of(thirds, 2 - q, bit)));
      }
    }
  }
};

// ---- Scales ----------------------------------------------------------------------------------------------------
//
// unpack(block, unit_bytes, num_groups, out): the scales, and mins, of the units of a block.

// Float16 scales per 32 k, two to a unit.
template <bool has_min>
struct Halves {
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasMin = has_min;
  static void unpack(const std::byte* block, std::size_t unit_bytes, std::size_t num_groups, Block& out) {
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = block + g / 2 * unit_bytes;
      unpack_halves(unit + g % 2 * 32, out.d[g]);
      if constexpr (has_min) unpack_halves(unit + kLine + g % 2 * 32, out.min[g]);
    }
  }
};

// Exponents per 32 k, four to a unit. The scale is half the power of two, because kMXFP4Values are doubled. The
// smallest two would be denormal, and are zero.
struct Powers {
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasMin = false;
  static void unpack(const std::byte* block, std::size_t unit_bytes, std::size_t num_groups, Block& out) {
    for (std::size_t g = 0; g < num_groups; ++g)
      for (std::size_t row = 0; row < kPanelRows; row += 8) {
        const __m128i e = load_8_bytes(block + g / 4 * unit_bytes + g % 4 * 16 + row);
        const __m256i exponents = _mm256_cvtepu8_epi32(_mm_subs_epu8(e, _mm_set1_epi8(1)));
        _mm256_store_ps(out.d[g] + row, _mm256_castsi256_ps(_mm256_slli_epi32(exponents, 23)));
      }
  }
};

// An int8 scale for each run of 8 or of 4 quads, times a float16 per 256 k.
template <int run_quads>
struct RunScales {
  static constexpr int kRunQuads = run_quads;
  static constexpr bool kHasMin = false;
  static void unpack(const std::byte* unit, std::size_t, std::size_t, Block& out) {
    for (std::size_t run = 0; run < 64 / run_quads; ++run)
      for (std::size_t row = 0; row < kPanelRows; row += 8)
        _mm256_store_ps(out.d[run] + row, _mm256_mul_ps(halves_to_floats(unit + 2 * row),
                                                        signed_bytes_to_floats(unit + kRunScales + 16 * run + row)));
  }
};

// Q4_K, Q5_K.
struct RunScalesAndMins {
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasMin = true;
  static void unpack(const std::byte* unit, std::size_t, std::size_t, Block& out) {
    for (std::size_t row = 0; row < kPanelRows; row += 8) {
      const __m256 d = halves_to_floats(unit + 2 * row), dmin = halves_to_floats(unit + kMinOffset + 2 * row);
      for (std::size_t run = 0; run < 8; ++run) {
        _mm256_store_ps(out.d[run] + row, _mm256_mul_ps(d, bytes_to_floats(unit + kRunScales + 16 * run + row)));
        _mm256_store_ps(out.min[run] + row, _mm256_mul_ps(dmin, bytes_to_floats(unit + kRunMins + 16 * run + row)));
      }
    }
  }
};

// Q2_K: scale and min in one byte.
struct HalfRunScalesAndMins {
  static constexpr int kRunQuads = 4;
  static constexpr bool kHasMin = true;
  static void unpack(const std::byte* unit, std::size_t, std::size_t, Block& out) {
    const __m256i low_mask = _mm256_set1_epi32(15);
    for (std::size_t row = 0; row < kPanelRows; row += 8) {
      const __m256 d = halves_to_floats(unit + 2 * row), dmin = halves_to_floats(unit + kMinOffset + 2 * row);
      for (std::size_t run = 0; run < 16; ++run) {
        const __m256i both = _mm256_cvtepu8_epi32(load_8_bytes(unit + kRunScales + 16 * run + row));
        _mm256_store_ps(out.d[run] + row, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(both, low_mask))));
        _mm256_store_ps(out.min[run] + row, _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_srli_epi32(both, 4))));
      }
    }
  }
};

// ---- Types -----------------------------------------------------------------------------------------------------

template <PanelUnit unit, class Scales, class Codes>
struct Units {
  static constexpr std::size_t kBlockBytes = kBlockK / unit.k * unit_bytes(unit);
  static constexpr int kRunQuads = Scales::kRunQuads, kStartShift = Codes::kStartShift;
  static constexpr int kNarrowQuads = Codes::kNarrowQuads < kRunQuads ? Codes::kNarrowQuads : kRunQuads;
  static constexpr bool kWide = Codes::kWide, kHasMin = Scales::kHasMin, kRow256 = false;
  static std::size_t panel_bytes(std::size_t k) { return layout::panel_bytes(unit, k); }
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    constexpr std::size_t kUnitRuns = unit.k / 32, kRunsPerGroup = 8 / kRunQuads;
    const std::byte* from = panel + block * kBlockBytes;
    Scales::unpack(from, unit_bytes(unit), num_groups, out);
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* runs = from + g / kUnitRuns * unit_bytes(unit) + unit.header;
      std::uint8_t* to = out.lines + g * 8 * kLine;
      Codes::unpack(bytes(runs) + g % kUnitRuns * run_bytes(unit), to);
      for (std::size_t i = 0; i < kRunsPerGroup; ++i) out.run[g * kRunsPerGroup + i] = to + i * kRunQuads * kLine;
    }
  }
};

struct TQ {
  static constexpr std::size_t kBlockBytes = kTQUnit;
  static constexpr int kRunQuads = 64, kNarrowQuads = 32, kStartShift = 0;
  static constexpr bool kWide = false, kHasMin = false, kRow256 = true;
  static std::size_t panel_bytes(std::size_t k) { return layout::panel_bytes(kTQ, k); }
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    const std::byte* unit = panel + block * kTQUnit;
    unpack_halves(unit, out.d[0]);
    out.run[0] = out.lines;
    const __m256i mask = _mm256_set1_epi8(3);
    for (std::size_t j = 0; j < 16; ++j)
      for (std::size_t at = 0; at < kLine; at += kHalf) {
        const __m256i line = load_half_line(bytes(unit) + kLine + j * kLine + at);
        std::uint8_t* to = out.lines + j * 4 * kLine + at;
        store_half_line(to, _mm256_and_si256(line, mask));
        store_half_line(to + kLine, _mm256_and_si256(_mm256_srli_epi16(line, 2), mask));
        store_half_line(to + 2 * kLine, _mm256_and_si256(_mm256_srli_epi16(line, 4), mask));
        store_half_line(to + 3 * kLine, _mm256_and_si256(_mm256_srli_epi16(line, 6), mask));
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

// acc[r][16] += one block, for R rows from `a` on.
template <class Dot, class Type, int R>
inline void multiply_tile(const Block& block, const std::byte* a, const RowLayout& row, std::size_t block_index,
                          std::size_t num_runs, float* acc) {
  constexpr std::size_t kRunsPerBlock = kBlockK / 4 / Type::kRunQuads;
  constexpr std::size_t kRunsPerScale = Type::kRunQuads == 4 ? 2 : 1;
  const std::byte* codes = a + block_index * kBlockK;
  const std::byte* scale = a + row.scale + block_index * (kRunsPerBlock / kRunsPerScale) * 4;
  const std::byte* scaled_sums = a + row.scaled_sum + block_index * kRunsPerBlock * 4;
  const std::byte* start = a + row.start + block_index * kRunsPerBlock * 4;
  for (std::size_t run = 0; run < num_runs; ++run, codes += 4 * Type::kRunQuads) {
    if constexpr (R == 1) {
      constexpr std::size_t kBytes = round_up(Type::kBlockBytes / kRunsPerBlock, kLine);
      for (std::size_t i = run * kBytes; i < (run + 1) * kBytes; i += kLine)
        _mm_prefetch(reinterpret_cast<const char*>(block.ahead + i), _MM_HINT_T0);
    }
    __m256i sums[R][2];
    for (int r = 0; r < R; ++r)
      sums[r][0] = sums[r][1] = run_start<Dot, Type>(start + static_cast<std::size_t>(r) * row.stride + 4 * run);
    Dot::template multiply_run<Type, R>(block.run[run], codes, row.stride, sums);
    for (int r = 0; r < R; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * row.stride;
      const __m256 da = broadcast_float(scale + at + run / kRunsPerScale * 4);
      __m256 scaled_sum{};  // of activations
      if constexpr (Type::kHasMin && kRunsPerScale == 1)
        scaled_sum = broadcast_float(scaled_sums + at + run * 4);
      else if constexpr (Type::kHasMin)
        scaled_sum = _mm256_mul_ps(_mm256_cvtepi32_ps(broadcast_int(start + at + run * 4)),
                                   _mm256_mul_ps(da, _mm256_set1_ps(kPerStart)));
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
template <class Dot, class Type, int R>
inline void multiply_rest(const Block& block, const std::byte* a, const RowLayout& row, std::size_t block_index,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  if constexpr (R > 0) {
    if (num_rows == R) return multiply_tile<Dot, Type, R>(block, a, row, block_index, num_runs, acc);
    multiply_rest<Dot, Type, R - 1>(block, a, row, block_index, num_runs, num_rows, acc);
  }
}

template <class Dot, class Type>
inline void multiply_rows(const Block& block, const std::byte* a, const RowLayout& row, std::size_t block_index,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  while (num_rows >= Dot::kTileRows) {
    multiply_tile<Dot, Type, Dot::kTileRows>(block, a, row, block_index, num_runs, acc);
    a += Dot::kTileRows * row.stride;
    acc += Dot::kTileRows * kPanelRows;
    num_rows -= Dot::kTileRows;
  }
  multiply_rest<Dot, Type, Dot::kTileRows - 1>(block, a, row, block_index, num_runs, num_rows, acc);
}

// One panel, for at most kBlockRows rows.
template <class Dot, class Type>
void multiply_panel(const MatrixView& matrix, std::size_t panel, const std::byte* a, const RowLayout& row,
                    std::size_t num_rows, float* out, std::size_t out_stride) {
  const std::byte* weights = matrix.body + panel * Type::panel_bytes(matrix.k);
  constexpr std::size_t kBlocksAhead = (kPrefetchBytes + Type::kBlockBytes - 1) / Type::kBlockBytes;
  Block block;
  alignas(64) float acc[kBlockRows * kPanelRows];
  for (std::size_t i = 0; i < num_rows * kPanelRows; i += 8) _mm256_store_ps(acc + i, _mm256_setzero_ps());
  for (std::size_t index = 0; index * kBlockK < matrix.k; ++index) {
    const std::size_t rest = matrix.k - index * kBlockK;
    const std::size_t count = rest < kBlockK ? rest : kBlockK;
    block.ahead = weights + (index + kBlocksAhead) * Type::kBlockBytes;  // may be past the end, for prefetching only
    Type::unpack(weights, index, count / 32, block);
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

template <class Dot, class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const RowLayout row = row_layout<Type>(matrix.k);
  for (std::size_t begin = 0; begin < num_rows; begin += kBlockRows) {
    const std::size_t rows = num_rows - begin < kBlockRows ? num_rows - begin : kBlockRows;
    for (std::size_t panel = panel_begin; panel < panel_end; ++panel)
      multiply_panel<Dot, Type>(matrix, panel, prepared + begin * row.stride, row, rows, out + begin * out_stride,
                                out_stride);
  }
}

// The product of a type; nullptr for types without codes.
template <class Dot>
Matmul* matmul_of(WeightType type) {
  switch (type) {
    case WeightType::q8_0:
      return multiply<Dot, Q8_0>;
    case WeightType::q4_0:
      return multiply<Dot, Units<kQ4_0, Halves<false>, Fours<8>>>;
    case WeightType::q4_1:
      return multiply<Dot, Units<kQ4_1, Halves<true>, Fours<0>>>;
    case WeightType::q5_0:
      return multiply<Dot, Units<kQ5_0, Halves<false>, Fives<16>>>;
    case WeightType::q5_1:
      return multiply<Dot, Units<kQ5_1, Halves<true>, Fives<0>>>;
    case WeightType::iq4_nl:
      return multiply<Dot, Units<kQ4_0, Halves<false>, NonLinear>>;
    case WeightType::iq4_xs:
      return multiply<Dot, Units<kIQ4_XS, RunScales<8>, NonLinear>>;
    case WeightType::mxfp4:
      return multiply<Dot, Units<kMXFP4, Powers, Fp4>>;
    case WeightType::q2_k:
      return multiply<Dot, Units<kQ2_K, HalfRunScalesAndMins, Twos>>;
    case WeightType::q3_k:
      return multiply<Dot, Units<kQ3_K, RunScales<4>, Threes>>;
    case WeightType::q4_k:
      return multiply<Dot, Units<kQ4_K, RunScalesAndMins, Fours<0>>>;
    case WeightType::q5_k:
      return multiply<Dot, Units<kQ5_K, RunScalesAndMins, Fives<0>>>;
    case WeightType::q6_k:
      return multiply<Dot, Units<kQ6_K, RunScales<4>, Sixes>>;
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
}  // namespace troupe::kernels::int8_256
