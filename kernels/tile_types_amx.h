// How each packed weight type becomes tiles of the matrix unit: for matmul_amx.cpp alone, compiled with its flags.
#pragma once

#include <immintrin.h>

#include "kernels/groups.h"
#include "kernels/packed_layout.h"

#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::kernels::amx {
namespace {

using namespace layout;

constexpr std::size_t kPrefetchBytes = 2048;  // how far ahead of the expansion memory is asked

TROUPE_INLINE __m512 load_halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TROUPE_INLINE __m512 signed_bytes(const std::byte* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
TROUPE_INLINE __m512 unsigned_bytes(const std::byte* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
TROUPE_INLINE __m512i load_line(const std::byte* p) { return _mm512_loadu_si512(p); }
TROUPE_INLINE void store_line(std::byte* p, __m512i line) { _mm512_store_si512(p, line); }
TROUPE_INLINE void prefetch(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

// A bfloat16 line: k = j and k = 16 + j become words 2j and 2j + 1, cut off. 0xea is (a & b) | c.
TROUPE_INLINE __m512i cut_off_pairs(__m512 low, __m512 high) {
  return _mm512_ternarylogic_epi32(_mm512_castps_si512(high), _mm512_set1_epi32(static_cast<int>(0xffff0000u)),
                                   _mm512_srli_epi32(_mm512_castps_si512(low), 16), 0xea);
}

// Words rotated right: bit `count % 16` of a word becomes bit 0.
TROUPE_INLINE __m512i rotate(__m512i words, __m512i count) { return _mm512_shrdv_epi16(words, words, count); }
TROUPE_INLINE __m512i rotation(std::size_t count) { return _mm512_set1_epi16(static_cast<short>(count & 15)); }

TROUPE_INLINE void no_hook(int) {}

// ---- How each type becomes tiles ----------------------------------------------------------------------
//
// stages(k), panel_bytes(k); expand(panel, stage, tiles, hook) writes the kStageTiles tiles of one stage of one panel
// and calls hook(r) before row r = 0..15: what the matrix unit can do meanwhile. kStageTiles tiles of weights per stage
// meet kStageSteps tiles of rows (per plane).

// A table of 32 bfloat16 values serves two runs of 32 k: entry 2c is code c of the first, 2c + 1 of the second.
struct TwoRuns {
  __m512i table, first_turn, second_turn;
  TROUPE_INLINE __m512i first(__m512i nibbles) const {
    return _mm512_permutexvar_epi16(_mm512_and_si512(rotate(nibbles, first_turn), _mm512_set1_epi16(0x1e)), table);
  }
  TROUPE_INLINE __m512i second(__m512i nibbles) const {
    return _mm512_permutexvar_epi16(
        _mm512_ternarylogic_epi32(rotate(nibbles, second_turn), _mm512_set1_epi16(0x1e), _mm512_set1_epi16(1), 0xea),
        table);
  }
};

TROUPE_INLINE __m512 ascending() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

struct Bf16Steps {
  static constexpr std::size_t kStageSteps = 2;
  static constexpr bool kSplit = false, kIntegers = false;
};

struct Bf16 : Bf16Steps {
  static constexpr std::size_t kStageTiles = 2;
  static std::size_t stages(std::size_t k) { return (k + 63) / 64; }
  static std::size_t panel_bytes(std::size_t k) { return stages(k) * kTilesFloatStage; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* from = panel + stage * kTilesFloatStage;
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      for (std::size_t t = 0; t < 2; ++t) {
        const std::size_t line = t * kTile + static_cast<std::size_t>(r) * kLine;
        store_line(tiles + line, load_line(from + line));
        prefetch(from + line + kPrefetchBytes);
      }
    }
  }
};

// Two tiles of high parts, then two of low parts: a half has 11 bits, two bfloat16 have 16.
struct F16 {
  static constexpr std::size_t kStageTiles = 4, kStageSteps = 2;
  static constexpr bool kSplit = true, kIntegers = false;
  static std::size_t stages(std::size_t k) { return (k + 63) / 64; }
  static std::size_t panel_bytes(std::size_t k) { return stages(k) * kTilesFloatStage; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* from = panel + stage * kTilesFloatStage;
    const __m512i even = _mm512_setr_epi32(0x00020000, 0x00060004, 0x000a0008, 0x000e000c, 0x00120010, 0x00160014,
                                           0x001a0018, 0x001e001c, 0x00030001, 0x00070005, 0x000b0009, 0x000f000d,
                                           0x00130011, 0x00170015, 0x001b0019, 0x001f001d);
    const __m512 high_part = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000u)));
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      for (std::size_t t = 0; t < 2; ++t) {
        const std::size_t line = t * kTile + static_cast<std::size_t>(r) * kLine;
        const __m512i halves = _mm512_permutexvar_epi16(even, load_line(from + line));
        const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
        const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
        store_line(tiles + line, cut_off_pairs(first, second));
        const __m512 first_rest = _mm512_sub_ps(first, _mm512_and_ps(first, high_part));
        const __m512 second_rest = _mm512_sub_ps(second, _mm512_and_ps(second, high_part));
        store_line(tiles + 2 * kTile + line, cut_off_pairs(first_rest, second_rest));
        prefetch(from + line + kPrefetchBytes);
      }
    }
  }
};

struct Q8_0 : Bf16Steps {
  static constexpr std::size_t kStageTiles = 2;
  static std::size_t stages(std::size_t k) { return (k + 63) / 64; }
  static std::size_t panel_bytes(std::size_t k) { return stages(k) * kTilesQ8_0Unit; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* unit = panel + stage * kTilesQ8_0Unit;
    const __m512 raise = _mm512_set1_ps(kCutOffRaise);
    alignas(64) float d[2][16];
    _mm512_store_ps(d[0], _mm512_mul_ps(load_halves(unit), raise));
    _mm512_store_ps(d[1], _mm512_mul_ps(load_halves(unit + 32), raise));
    prefetch(unit + kPrefetchBytes);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      const std::byte* codes = unit + kLine + static_cast<std::size_t>(r) * kLine;
#pragma GCC unroll 2
      for (std::size_t t = 0; t < 2; ++t) {
        const __m512 scale = _mm512_set1_ps(d[t][r]);
        store_line(tiles + t * kTile + static_cast<std::size_t>(r) * kLine,
                   cut_off_pairs(_mm512_mul_ps(signed_bytes(codes + 32 * t), scale),
                                 _mm512_mul_ps(signed_bytes(codes + 32 * t + 16), scale)));
      }
      prefetch(codes + kPrefetchBytes);
    }
  }
};

// The 16 values of a 4-bit code times the scale of a group of 32, and for Q4_1 the group's minimum added.
template <class Codebook>
struct Nibbles32 : Bf16Steps {
  static constexpr std::size_t kStageTiles = 2;
  static constexpr std::size_t kUnit = Codebook::kHasMin ? kTilesQ4_1Unit : kTilesQ4_0Unit;
  static constexpr std::size_t kHeader = Codebook::kHasMin ? 4 * kLine : 2 * kLine;
  static std::size_t stages(std::size_t k) { return (k + 127) / 128 * 2; }
  static std::size_t panel_bytes(std::size_t k) { return stages(k) / 2 * kUnit; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* unit = panel + stage / 2 * kUnit;
    const std::size_t run = stage % 2 * 2;
    const __m512 values = _mm512_mul_ps(Codebook::values(), _mm512_set1_ps(kCutOffRaise));
    alignas(64) float d[2][16];
    _mm512_store_ps(d[0], load_halves(unit + run * 32));
    _mm512_store_ps(d[1], load_halves(unit + run * 32 + 32));
    alignas(64) float min[2][16];
    if constexpr (Codebook::kHasMin) {
      const __m512 raise = _mm512_set1_ps(kCutOffRaise);
      _mm512_store_ps(min[0], _mm512_mul_ps(load_halves(unit + 2 * kLine + run * 32), raise));
      _mm512_store_ps(min[1], _mm512_mul_ps(load_halves(unit + 2 * kLine + run * 32 + 32), raise));
      prefetch(unit + 2 * kLine + kPrefetchBytes + stage % 2 * kLine);
    }
    prefetch(unit + kPrefetchBytes + stage % 2 * kLine);
    const std::byte* lines = unit + kHeader;
    const std::byte* ahead = lines + kPrefetchBytes + stage % 2 * kLine;  // even rows' in one stage, odd in the other
    TwoRuns runs;
    runs.first_turn = rotation(4 * run + 15);
    runs.second_turn = rotation(4 * run + 3);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      if constexpr (Codebook::kHasMin)
        runs.table = cut_off_pairs(_mm512_fmadd_ps(values, _mm512_set1_ps(d[0][r]), _mm512_set1_ps(min[0][r])),
                                   _mm512_fmadd_ps(values, _mm512_set1_ps(d[1][r]), _mm512_set1_ps(min[1][r])));
      else
        runs.table = cut_off_pairs(_mm512_mul_ps(values, _mm512_set1_ps(d[0][r])),
                                   _mm512_mul_ps(values, _mm512_set1_ps(d[1][r])));
      const __m512i nibbles = load_line(lines + line);
      store_line(tiles + line, runs.first(nibbles));
      store_line(tiles + kTile + line, runs.second(nibbles));
      if (r % 2 == 0) prefetch(ahead + line);
    }
  }
};
struct FromMinusEight {
  static constexpr bool kHasMin = false;
  TROUPE_INLINE static __m512 values() { return _mm512_sub_ps(ascending(), _mm512_set1_ps(8)); }
};
struct FromZero {
  static constexpr bool kHasMin = true;
  TROUPE_INLINE static __m512 values() { return ascending(); }
};
struct NonLinear {
  static constexpr bool kHasMin = false;
  TROUPE_INLINE static __m512 values() { return signed_bytes(reinterpret_cast<const std::byte*>(kIQ4_NLValues)); }
};
using Q4_0 = Nibbles32<FromMinusEight>;
using Q4_1 = Nibbles32<FromZero>;
using IQ4_NL = Nibbles32<NonLinear>;

// The scales and negated mins of the two runs of 32 k of a stage, for Q4_K and Q5_K.
struct StageScales {
  alignas(64) float scale[2][16];
  alignas(64) float min[2][16];
  TROUPE_INLINE StageScales(const std::byte* unit, std::size_t first_run) {
    const __m512 raise = _mm512_set1_ps(kCutOffRaise);
    const __m512 d = _mm512_mul_ps(load_halves(unit), raise);
    const __m512 dmin = _mm512_mul_ps(load_halves(unit + kMinOffset), _mm512_sub_ps(_mm512_setzero_ps(), raise));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t at = 16 * (first_run + i);
      _mm512_store_ps(scale[i], _mm512_mul_ps(d, unsigned_bytes(unit + kRunScales + at)));
      _mm512_store_ps(min[i], _mm512_mul_ps(dmin, unsigned_bytes(unit + kRunMins + at)));
    }
  }
};

struct Q4_K : Bf16Steps {
  static constexpr std::size_t kStageTiles = 2;
  static std::size_t stages(std::size_t k) { return k / 64; }
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kTilesQ4_KUnit; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* unit = panel + stage / 4 * kTilesQ4_KUnit;
    const std::size_t run = stage % 4 * 2;
    const StageScales scales(unit, run);
    prefetch(unit + kPrefetchBytes + stage % 4 * kLine);
    const std::byte* lines = unit + kRuns + run / 4 * kTilesNibbles;
    const std::byte* ahead = lines + kPrefetchBytes + stage % 2 * kLine;
    TwoRuns runs;
    runs.first_turn = rotation(4 * run + 15);
    runs.second_turn = rotation(4 * run + 3);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      runs.table = cut_off_pairs(
          _mm512_fmadd_ps(ascending(), _mm512_set1_ps(scales.scale[0][r]), _mm512_set1_ps(scales.min[0][r])),
          _mm512_fmadd_ps(ascending(), _mm512_set1_ps(scales.scale[1][r]), _mm512_set1_ps(scales.min[1][r])));
      const __m512i nibbles = load_line(lines + line);
      store_line(tiles + line, runs.first(nibbles));
      store_line(tiles + kTile + line, runs.second(nibbles));
      if (r % 2 == 0) prefetch(ahead + line);
    }
  }
};

struct Q5_K : Bf16Steps {
  static constexpr std::size_t kStageTiles = 2;
  static std::size_t stages(std::size_t k) { return k / 64; }
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kTilesQ5_KUnit; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* unit = panel + stage / 4 * kTilesQ5_KUnit;
    const std::size_t run = stage % 4 * 2;
    const StageScales scales(unit, run);
    prefetch(unit + kPrefetchBytes + stage % 4 * kLine);
    prefetch(unit + kTilesHighBits + kPrefetchBytes + stage % 4 * 2 * kLine);
    const std::byte* lines = unit + kRuns + run / 4 * kTilesNibbles;
    const std::byte* ahead = lines + kPrefetchBytes + stage % 2 * kLine;
    const __m512i low = _mm512_set1_epi16(15), fifth = _mm512_set1_epi16(16);
    const __m512i turn[2] = {rotation(4 * run), rotation(4 * run + 4)};
    const __m512i even_row_turn[2] = {rotation(run + 12), rotation(run + 13)};
    const __m512i odd_row_turn[2] = {rotation(run + 4), rotation(run + 5)};
    const __m512 even = _mm512_add_ps(ascending(), ascending());  // codes 0, 2 .. 30 and 1, 3 .. 31
    const __m512 odd = _mm512_add_ps(even, _mm512_set1_ps(1));
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      const __m512i nibbles = load_line(lines + line);
      const __m512i high = load_line(unit + kTilesHighBits + static_cast<std::size_t>(r / 2) * kLine);
#pragma GCC unroll 2
      for (std::size_t t = 0; t < 2; ++t) {
        const __m512 scale = _mm512_set1_ps(scales.scale[t][r]), min = _mm512_set1_ps(scales.min[t][r]);
        const __m512i table = cut_off_pairs(_mm512_fmadd_ps(even, scale, min), _mm512_fmadd_ps(odd, scale, min));
        const __m512i bit = rotate(high, r % 2 == 0 ? even_row_turn[t] : odd_row_turn[t]);
        const __m512i code =
            _mm512_ternarylogic_epi32(bit, fifth, _mm512_and_si512(rotate(nibbles, turn[t]), low), 0xea);
        store_line(tiles + t * kTile + line, _mm512_permutexvar_epi16(code, table));
      }
      if (r % 2 == 0) prefetch(ahead + line);
    }
  }
};

struct Q6_K : Bf16Steps {
  static constexpr std::size_t kStageTiles = 2;
  static std::size_t stages(std::size_t k) { return k / 64; }
  static std::size_t panel_bytes(std::size_t k) { return k / 256 * kTilesQ6_KUnit; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* unit = panel + stage / 4 * kTilesQ6_KUnit;
    const std::size_t run = stage % 4 * 2;
    const __m512 d = _mm512_mul_ps(load_halves(unit), _mm512_set1_ps(kCutOffRaise));
    alignas(64) float scale[4][16], offset[4][16];  // -32 times the scale: the codes' offset
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512 s = _mm512_mul_ps(d, signed_bytes(unit + kRunScales + 16 * (2 * run + i)));
      _mm512_store_ps(scale[i], s);
      _mm512_store_ps(offset[i], _mm512_mul_ps(s, _mm512_set1_ps(-32)));
    }
    prefetch(unit + kPrefetchBytes + stage % 4 * kLine);
    const std::byte* lines = unit + kRuns + run / 4 * kTilesNibbles;
    const std::byte* ahead = lines + kPrefetchBytes + stage % 2 * kLine;
    const std::byte* high_ahead = unit + kTilesHighBits + kPrefetchBytes + stage % 4 * kLine;
    const __m512i low = _mm512_set1_epi16(15), high_two = _mm512_set1_epi16(0x30), word = _mm512_set1_epi32(0xffff);
    const __m512i turn[2] = {rotation(4 * run), rotation(4 * run + 4)};
    const __m512i high_turn[2] = {rotation(2 * run + 12), rotation(2 * run + 14)};
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      const __m512i nibbles = load_line(lines + line);
      const __m512i high = load_line(unit + kTilesHighBits + line);
#pragma GCC unroll 2
      for (std::size_t t = 0; t < 2; ++t) {
        const __m512i code = _mm512_ternarylogic_epi32(rotate(high, high_turn[t]), high_two,
                                                       _mm512_and_si512(rotate(nibbles, turn[t]), low), 0xea);
        const __m512 first = _mm512_cvtepi32_ps(_mm512_and_si512(code, word));
        const __m512 second = _mm512_cvtepi32_ps(_mm512_srli_epi32(code, 16));
        store_line(
            tiles + t * kTile + line,
            cut_off_pairs(
                _mm512_fmadd_ps(first, _mm512_set1_ps(scale[2 * t][r]), _mm512_set1_ps(offset[2 * t][r])),
                _mm512_fmadd_ps(second, _mm512_set1_ps(scale[2 * t + 1][r]), _mm512_set1_ps(offset[2 * t + 1][r]))));
      }
      if (r % 2 == 0) prefetch(ahead + line);
      if (r % 4 == 0) prefetch(high_ahead + line);
    }
  }
};

// Codes 0..2 stay as they are; the sum of the activations is subtracted at the end. One integer run over all of k.
struct TQ {
  static constexpr std::size_t kStageTiles = 1, kStageSteps = 1;
  static constexpr bool kSplit = false, kIntegers = true;
  static std::size_t stages(std::size_t k) { return k / 64; }
  static std::size_t panel_bytes(std::size_t k) { return kLine + (k + 255) / 256 * kTilesTQUnit; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, Hook hook) {
    const std::byte* unit = panel + kLine + stage / 4 * kTilesTQUnit;
    const std::byte* ahead = unit + kPrefetchBytes + stage % 4 * kLine;
    const __m512i mask = _mm512_set1_epi8(3), turn = rotation(stage % 4 * 2);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      store_line(tiles + line, _mm512_and_si512(_mm512_srlv_epi16(load_line(unit + line), turn), mask));
      if (r % 4 == 0) prefetch(ahead + line);
    }
  }
};

}  // namespace
}  // namespace troupe::kernels::amx
