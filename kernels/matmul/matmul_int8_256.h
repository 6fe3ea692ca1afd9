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

#include "kernels/matmul/int8_types.h"
#include "kernels/variants.h"

namespace troupe::kernels::int8_256 {
namespace {

using namespace layout;

constexpr std::size_t kBlockRows = 48;
constexpr std::size_t kBlockK = 256;
// Up to some rows are multiplied faster than weights arrive from memory: prefetches this far ahead. Without it, 2 rows
// took 1.5 times as long as one, 8 rows 1.2 times as long as they do now.
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

// A type defines how a block is unpacked, beside the constants of Int8Type.

// Read in place.
struct Q8_0 : Int8Type<Codes<scales::Halves, 8, Minus<128>>> {
  static constexpr PanelUnit kUnit = Packing::kPanelUnit;
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = panel + (block * 4 + g / 2) * unit_bytes(kUnit);
      unpack_halves(unit + g % 2 * 32, out.d[g]);
      out.run[g] = bytes(unit) + kLine + g % 2 * 8 * kLine;
    }
  }
};

// ---- Codes -----------------------------------------------------------------------------------------------------
//
// unpack(from, to): unpacks the lines of a run of 32 to eight lines of bytes.

inline __m256i each_byte(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
// Shifts by -7 to 7 places, to the left or, below 0, to the right. Bits of the neighbouring byte shift in, too.
inline __m256i shift_left(__m256i x, int places) {
  return places < 0 ? _mm256_srli_epi16(x, -places) : _mm256_slli_epi16(x, places);
}
// The bits of `mask` of the shifted x.
inline __m256i bits_of(__m256i x, int places, __m256i mask) { return _mm256_and_si256(shift_left(x, places), mask); }

template <int bits, class Values>
struct UnpackCodes;

template <int offset>
struct UnpackCodes<4, Minus<offset>> {
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
struct UnpackCodes<5, Minus<offset>> {
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

template <int offset>
struct UnpackCodes<6, Minus<offset>> {
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

// Nibbles that index a table of values.
template <const std::int8_t (&values)[16]>
struct UnpackCodes<4, Among<values>> {
  static constexpr int offset = Among<values>::kOffset;
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

template <>
struct UnpackCodes<2, Minus<0>> {
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

template <int offset>
struct UnpackCodes<3, Minus<offset>> {
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

template <class Scales>
struct UnpackScales;

// Float16 scales per 32 k, two to a unit.
template <bool has_min>
struct Halves {
  static void unpack(const std::byte* block, std::size_t unit_bytes, std::size_t num_groups, Block& out) {
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = block + g / 2 * unit_bytes;
      unpack_halves(unit + g % 2 * 32, out.d[g]);
      if constexpr (has_min) unpack_halves(unit + kLine + g % 2 * 32, out.min[g]);
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
    for (std::size_t g = 0; g < num_groups; ++g)
      for (std::size_t row = 0; row < kPanelRows; row += 8) {
        const __m128i e = load_8_bytes(block + g / 4 * unit_bytes + g % 4 * 16 + row);
        const __m256i exponents = _mm256_cvtepu8_epi32(_mm_subs_epu8(e, _mm_set1_epi8(1)));
        _mm256_store_ps(out.d[g] + row, _mm256_castsi256_ps(_mm256_slli_epi32(exponents, 23)));
      }
  }
};

// An int8 scale for each run of 8 or of 4 quads, times a float16 per 256 k.
template <std::size_t count>
struct UnpackScales<scales::SignedScales<count>> {
  static void unpack(const std::byte* unit, std::size_t, std::size_t, Block& out) {
    for (std::size_t run = 0; run < count; ++run)
      for (std::size_t row = 0; row < kPanelRows; row += 8)
        _mm256_store_ps(out.d[run] + row, _mm256_mul_ps(halves_to_floats(unit + 2 * row),
                                                        signed_bytes_to_floats(unit + kRunScales + 16 * run + row)));
  }
};

// Q4_K, Q5_K.
template <>
struct UnpackScales<scales::RunsAndMins> {
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
template <>
struct UnpackScales<scales::HalfRunsAndMins> {
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

template <class Packing>
struct Units : Int8Type<Packing> {
  static constexpr PanelUnit unit = Packing::kPanelUnit;
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    constexpr std::size_t kUnitRuns = unit.k / 32, kRunQuads = Units::kRunQuads, kRunsPerGroup = 8 / kRunQuads;
    const std::byte* from = panel + block * Units::kBlockBytes;
    UnpackScales<typename Packing::Scales>::unpack(from, unit_bytes(unit), num_groups, out);
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* runs = from + g / kUnitRuns * unit_bytes(unit) + unit.header;
      std::uint8_t* to = out.lines + g * 8 * kLine;
      UnpackCodes<Packing::kBits, typename Packing::Values>::unpack(bytes(runs) + g % kUnitRuns * run_bytes(unit), to);
      for (std::size_t i = 0; i < kRunsPerGroup; ++i) out.run[g * kRunsPerGroup + i] = to + i * kRunQuads * kLine;
    }
  }
};

struct TQ : Int8Type<Ternary> {
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
  // The first tile prefetches: the others find the block in the cache.
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
}  // namespace troupe::kernels::int8_256
