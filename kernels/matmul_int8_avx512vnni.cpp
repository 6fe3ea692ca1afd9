// Matrix products of quantized weights with int8 activations on AVX-512-VNNI.
//
// Blocks of 256 k of two panels are unpacked to unsigned bytes on the stack (Q8_0 is read in place) and
// multiplied with tiles of 6 rows: 12 int32 and 12 float32 accumulators, one broadcast of an activation
// quad serves two `vpdpbusd`. The float32 chains of up to 48 rows wait in an L1-sized buffer while the
// next block is unpacked, so unpacking costs some 7 % of a large product, and a single row streams the
// weights once at memory speed. Every output goes through the same instructions whatever the tile.
#include <immintrin.h>

#include "kernels/groups.h"
#include "kernels/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512vnni {
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

// Nibble line j of a run: quads j and j + 4. `add` lifts the codes' offset to 128.
inline void unpack_nibbles(const std::uint8_t* from, std::uint8_t* to, __m512i add) {
  const __m512i low_mask = _mm512_set1_epi8(15);
  for (int j = 0; j < 4; ++j) {
    const __m512i line = load_line(from + j * kLine);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), low_mask);
    _mm512_store_si512(to + j * kLine, _mm512_add_epi8(_mm512_and_si512(line, low_mask), add));
    _mm512_store_si512(to + (j + 4) * kLine, _mm512_add_epi8(high, add));
  }
}

// A type says how a block is unpacked, how long an exact integer run is, and how its offset is removed.

struct Q8_0 {
  static constexpr std::size_t kBlockBytes = 4 * kQ8_0Unit;
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = kLine;  // scales lie between pairs of groups
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ8_0Unit; }
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    const std::byte* unit = panel + block * 4 * kQ8_0Unit;
    out.first = bytes(unit) + kLine;
    for (std::size_t g = 0; g < num_groups; ++g)
      _mm512_store_ps(out.d[g], load_halves(unit + g / 2 * kQ8_0Unit + g % 2 * 32));
  }
};

struct Q4_0 {
  static constexpr std::size_t kBlockBytes = 4 * kQ4_0Unit;
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_0Unit; }
  static void unpack(const std::byte* panel, std::size_t block, std::size_t num_groups, Block& out) {
    out.first = out.lines;
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::byte* unit = panel + (block * 4 + g / 2) * kQ4_0Unit;
      _mm512_store_ps(out.d[g], load_halves(unit + g % 2 * 32));
      unpack_nibbles(bytes(unit) + kLine + g % 2 * 4 * kLine, out.lines + g * 8 * kLine,
                     _mm512_set1_epi8(layout::kSumOffset - 8));
    }
  }
};

struct Q4_1 {
  static constexpr std::size_t kBlockBytes = 4 * kQ4_1Unit;
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasOffset = false;
  static constexpr bool kHasMin = true, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_1Unit; }
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
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_0Unit; }
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
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasOffset = false;
  static constexpr bool kHasMin = true, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kQ4_KUnit; }
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
  static constexpr int kRunQuads = 8;
  static constexpr bool kHasOffset = false;
  static constexpr bool kHasMin = true, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kQ5_KUnit; }
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
  static constexpr int kRunQuads = 4;
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasMin = false, kRow256 = false;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kQ6_KUnit; }
  static void unpack(const std::byte* panel, std::size_t block, std::size_t, Block& out) {
    const std::byte* unit = panel + block * kQ6_KUnit;
    out.first = out.lines;
    const __m512 d = load_halves(unit);
    for (int run = 0; run < 16; ++run)
      _mm512_store_ps(out.d[run], _mm512_mul_ps(d, signed_bytes_to_floats(bytes(unit) + kRunScales + 16 * run)));
    const __m512i low_mask = _mm512_set1_epi8(15), bits = _mm512_set1_epi8(0x30);
    const __m512i add = _mm512_set1_epi8(kSumOffset - 32);
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
  static constexpr int kRunQuads = 64;
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasMin = false, kRow256 = true;
  static constexpr std::size_t kPairGap = 0;
  static std::size_t panel_bytes(std::size_t k) { return (k + 255) / 256 * kTQUnit; }
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
template <class Type>
inline __m512i run_start(const std::byte* start) {
  if constexpr (Type::kHasOffset)
    return _mm512_set1_epi32(int_at(start));
  else
    return _mm512_setzero_si512();
}

// acc[r][p] += one block, for R rows from `a` on and P panels.
// (Checks of undefined behaviour on each of its thousands of loads take clang 14 minutes; addresses stay
// checked.)
template <class Type, int P, int R>
__attribute__((no_sanitize("undefined"))) inline void multiply_tile(const Block* blocks, const std::byte* a,
                                                                    const RowLayout& row, std::size_t block,
                                                                    std::size_t num_runs, float* acc) {
  constexpr std::size_t kRunsPerBlock = kBlockK / 4 / Type::kRunQuads;
  constexpr std::size_t kRunsPerScale = Type::kRunQuads == 4 ? 2 : 1;
  constexpr std::size_t kParts = Type::kRunQuads < 8 ? kRunsPerBlock : 8;
  // A few rows alone would wait for vpdpbusd's latency (5 cycles, 2 per cycle): integer sums may be cut.
  constexpr int kChains = P * R <= 2 ? 4 : P * R <= 4 ? 2 : 1;
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
        chains[p][r][0] = run_start<Type>(start + r * row.stride + 4 * run);
        for (int c = 1; c < kChains; ++c) chains[p][r][c] = _mm512_setzero_si512();
      }
    for (int outer = 0; outer < Type::kRunQuads; outer += Type::kRunQuads < 8 ? Type::kRunQuads : 8) {
      if constexpr (R <= kPrefetchRows)
        prefetch_part<Type, P, kParts>(blocks, run * (kParts / kRunsPerBlock) + static_cast<std::size_t>(outer) / 8);
#pragma GCC unroll 8
      for (int q = 0; q < (Type::kRunQuads < 8 ? Type::kRunQuads : 8); ++q) {
        __m512i w[P];
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) w[p] = load_line(blocks[p].first + line);
        line += kLine;
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const __m512i quad = _mm512_set1_epi32(int_at(codes + r * row.stride + 4 * q));
#pragma GCC unroll 2
          for (int p = 0; p < P; ++p)
            chains[p][r][q % kChains] = _mm512_dpbusd_epi32(chains[p][r][q % kChains], w[p], quad);
        }
      }
      codes += Type::kRunQuads < 8 ? 4 * Type::kRunQuads : 32;
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

template <class Type, int P>
inline void multiply_rows(const Block* blocks, const std::byte* a, const RowLayout& row, std::size_t block,
                          std::size_t num_runs, std::size_t num_rows, float* acc) {
  while (num_rows >= kTileRows) {
    multiply_tile<Type, P, kTileRows>(blocks, a, row, block, num_runs, acc);
    a += kTileRows * row.stride;
    acc += kTileRows * P * 16;
    num_rows -= kTileRows;
  }
  switch (num_rows) {
    case 1:
      return multiply_tile<Type, P, 1>(blocks, a, row, block, num_runs, acc);
    case 2:
      return multiply_tile<Type, P, 2>(blocks, a, row, block, num_runs, acc);
    case 3:
      return multiply_tile<Type, P, 3>(blocks, a, row, block, num_runs, acc);
    case 4:
      return multiply_tile<Type, P, 4>(blocks, a, row, block, num_runs, acc);
    case 5:
      return multiply_tile<Type, P, 5>(blocks, a, row, block, num_runs, acc);
    default:
      return;
  }
}

// P panels from `panel` on, for at most kBlockRows rows.
template <class Type, int P>
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
      Type::unpack(weights, block, count / 32, blocks[p]);
    }
    constexpr std::size_t kRun = 4 * Type::kRunQuads;  // TQ's last one may be shorter: zeros fill it up
    multiply_rows<Type, P>(blocks, a, row, block, (count + kRun - 1) / kRun, num_rows, acc);
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

template <class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const RowLayout row = row_layout<Type>(matrix.k);
  for (std::size_t begin = 0; begin < num_rows; begin += kBlockRows) {
    const std::size_t rows = num_rows - begin < kBlockRows ? num_rows - begin : kBlockRows;
    const std::byte* a = prepared + begin * row.stride;
    std::size_t panel = panel_begin;
    for (; panel + kMaxPanels <= panel_end; panel += kMaxPanels)
      multiply_panels<Type, kMaxPanels>(matrix, panel, a, row, rows, out + begin * out_stride, out_stride);
    if (panel < panel_end) multiply_panels<Type, 1>(matrix, panel, a, row, rows, out + begin * out_stride, out_stride);
  }
}

}  // namespace

void matmul_q8_0(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Q8_0>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q4_0(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Q4_0>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q4_1(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Q4_1>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_iq4_nl(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                   std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<IQ4_NL>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q4_k(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Q4_K>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q5_k(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Q5_K>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q6_k(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<Q6_K>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_tq(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
               std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  multiply<TQ>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

}  // namespace troupe::kernels::avx512vnni
