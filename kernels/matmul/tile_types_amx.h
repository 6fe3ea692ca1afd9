// Expands each packed weight type to AMX tiles: for matmul_amx.h only, compiled with its flags.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/tiles_amx.h"
#include "kernels/formats/weight_formats.h"

namespace troupe::kernels::amx {
namespace {

using namespace layout;

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

// Prefetches a stage of kStageBytes to be expanded later, in ascending order: its lines (not always a whole number:
// some are prefetched twice) are spread over the 16 rows of the stage being expanded.
template <std::size_t kStageBytes>
TROUPE_INLINE void prefetch(const std::byte* ahead, int row) {
  for (std::size_t line = static_cast<std::size_t>(row) * kLine; line < kStageBytes; line += 16 * kLine)
    _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T0);
}

// Makes a bfloat16 line by truncation: low[j] (k = j) to word 2j, high[j] (k = 16 + j) to word 2j + 1.
TROUPE_INLINE __m512i cut_off_pairs(__m512 low, __m512 high) {
  const __m512i upper_words =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  return _mm512_mask_shuffle_epi8(_mm512_castps_si512(high), 0x3333333333333333u, _mm512_castps_si512(low),
                                  upper_words);
}

TROUPE_INLINE __m512i bytes(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
// and_or: (a & b) | c. select: bits of `a` where `mask` is one, else of `b`.
TROUPE_INLINE __m512i and_or(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0xea); }
TROUPE_INLINE __m512i select(__m512i mask, __m512i a, __m512i b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }
// Byte i of the result is the eight bits of its own qword from bit places[i] on (modulo 64).
TROUPE_INLINE __m512i bits_at(__m512i places, const std::byte* line) {
  return _mm512_multishift_epi64_epi8(places, load_line(line));
}

// Keeps an array in memory, so that a broadcast of one value is a load. Otherwise the compiler extracts it from a
// register by a permutation, and permutations limit the speed of expansion.
template <class Array>
TROUPE_INLINE void keep_in_memory(Array& array) {
  asm("" : "+m"(array));
}

TROUPE_INLINE void no_hook(int) {}

// ---- Expansion of each type to tiles -------------------------------------------------------------------
//
// stages(k), and panel_bytes(k) with kStageBytes per stage; expand(panel, stage, tiles, ahead, hook) writes the
// kStageTiles tiles of one stage of one panel, prefetches the stage at `ahead`, and calls hook(r) before row r = 0..15,
// which issues tile instructions that run at the same time. The kStageTiles weight tiles of a stage are multiplied with
// kStageSteps tiles of rows (per plane).

// For short codes. The values of a group's 16 codes are one vector of floats, and bytes 4c + 2 and 4c + 3 of it are
// value c truncated to bfloat16: one byte permutation looks up 32 values. Its indices, for both bytes of a word, are
// eight bits with the run's code at bit 2; in the line's words the codes begin at bit `first`.
class CodeIndices {
 public:
  TROUPE_INLINE explicit CodeIndices(int first)
      : places_(_mm512_add_epi8(_mm512_set1_epi64(0x2e2e1e1e0e0e3e3e), bytes(first))) {}
  // `code_bits`: mask of the code in an index; `rest`: the other bits of the index.
  TROUPE_INLINE __m512i operator()(const std::byte* line, int code_bits, __m512i rest) const {
    return and_or(bits_at(places_, line), bytes(code_bits), rest);
  }

 private:
  __m512i places_;
};
TROUPE_INLINE __m512i look_up(__m512i indices, __m512 values) {
  return _mm512_permutexvar_epi8(indices, _mm512_castps_si512(values));
}
TROUPE_INLINE __m512i look_up(__m512i indices, __m512 low_values, __m512 high_values) {
  return _mm512_permutex2var_epi8(_mm512_castps_si512(low_values), indices, _mm512_castps_si512(high_values));
}
// Adds `bit` to the index of each word that has a one in the row's dword of `bits`.
TROUPE_INLINE __m512i with_bit(__m512i indices, const std::byte* bits, int row, int bit) {
  const auto words = reinterpret_cast<const std::uint32_t*>(bits)[row];
  return _mm512_mask_add_epi16(indices, words, indices, bytes(bit));
}

// For longer codes. Puts 16 bytes of `codes`, at first + step * j, into the mantissas, from bit 8 * kByte up, of floats
// from 1 to 2. One fused multiply-add converts such a float to the weight.
template <int kByte>
class Mantissas {
 public:
  TROUPE_INLINE explicit Mantissas(int step) {
    alignas(64) std::uint32_t indices[16];
    for (int j = 0; j < 16; ++j) indices[j] = static_cast<std::uint32_t>(j * step) * 0x01010101u;
    first_ = _mm512_load_si512(indices);
  }
  TROUPE_INLINE __m512 operator()(__m512i codes, int first) const {
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x3f800000), 0x1111111111111111u << kByte,
                                                            _mm512_add_epi8(first_, bytes(first)), codes));
  }

 private:
  __m512i first_;
};
// Codes of 6 bits, from a line of nibbles and a line with their upper bits: byte 4j + 2h + t is the code of k = j + 16h
// of run `run` + t, below an exponent bit, for Mantissas<2>.
class JoinedCodes {
 public:
  TROUPE_INLINE explicit JoinedCodes(std::size_t run)
      : low_places_(_mm512_add_epi8(_mm512_set1_epi64(0x3430242014100400), bytes(static_cast<int>(run % 4 * 4)))),
        high_places_(_mm512_add_epi8(_mm512_set1_epi64(0x2e2c1e1c0e0c3e3c), bytes(static_cast<int>(2 * run)))) {}
  TROUPE_INLINE __m512i operator()(const std::byte* nibbles, const std::byte* high) const {
    return and_or(select(bytes(15), bits_at(low_places_, nibbles), bits_at(high_places_, high)), bytes(0x3f),
                  bytes(128));
  }

 private:
  __m512i low_places_, high_places_;
};

// Truncates values by kBits bits, so that their product with an integer of kBits bits is exact.
template <int kBits>
TROUPE_INLINE __m512 leading_bits(__m512 x) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(-1 << kBits)));
}

TROUPE_INLINE __m512 ascending() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

struct Bf16Steps {
  static constexpr std::size_t kStageSteps = 2;
  static constexpr bool kSplit = false, kIntegers = false;
};

struct Bf16 : Bf16Steps {
  static constexpr std::size_t kStageTiles = 2, kStageBytes = kTilesFloatStage;
  static std::size_t stages(std::size_t k) { return (k + 63) / 64; }
  static std::size_t panel_bytes(std::size_t k) { return stages(k) * kTilesFloatStage; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, const std::byte* ahead,
                                   Hook hook) {
    const std::byte* from = panel + stage * kTilesFloatStage;
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      prefetch<kStageBytes>(ahead, r);
      for (std::size_t t = 0; t < 2; ++t) {
        const std::size_t line = t * kTile + static_cast<std::size_t>(r) * kLine;
        store_line(tiles + line, load_line(from + line));
      }
    }
  }
};

// Two tiles of high parts, then two of low parts: a half has 11 bits, two bfloat16 have 16.
struct F16 {
  static constexpr std::size_t kStageTiles = 4, kStageSteps = 2, kStageBytes = kTilesFloatStage;
  static constexpr bool kSplit = true, kIntegers = false;
  static std::size_t stages(std::size_t k) { return (k + 63) / 64; }
  static std::size_t panel_bytes(std::size_t k) { return stages(k) * kTilesFloatStage; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, const std::byte* ahead,
                                   Hook hook) {
    const std::byte* from = panel + stage * kTilesFloatStage;
    const __m512i even = _mm512_setr_epi32(0x00020000, 0x00060004, 0x000a0008, 0x000e000c, 0x00120010, 0x00160014,
                                           0x001a0018, 0x001e001c, 0x00030001, 0x00070005, 0x000b0009, 0x000f000d,
                                           0x00130011, 0x00170015, 0x001b0019, 0x001f001d);
    const __m512 high_part = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000u)));
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      prefetch<kStageBytes>(ahead, r);
      for (std::size_t t = 0; t < 2; ++t) {
        const std::size_t line = t * kTile + static_cast<std::size_t>(r) * kLine;
        const __m512i halves = _mm512_permutexvar_epi16(even, load_line(from + line));
        const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
        const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
        store_line(tiles + line, cut_off_pairs(first, second));
        const __m512 first_rest = _mm512_sub_ps(first, _mm512_and_ps(first, high_part));
        const __m512 second_rest = _mm512_sub_ps(second, _mm512_and_ps(second, high_part));
        store_line(tiles + 2 * kTile + line, cut_off_pairs(first_rest, second_rest));
      }
    }
  }
};

// Types of codes: stages of a unit.
template <class PackingType>
struct TileUnits : Bf16Steps {
  using Packing = PackingType;
  static constexpr PanelUnit kUnit = Packing::kTilesUnit;
  static constexpr std::size_t kUnitBytes = unit_bytes(kUnit), kUnitStages = kUnit.k / kStageK;
  static constexpr std::size_t kStageTiles = 2, kStageBytes = kUnitBytes / kUnitStages;
  static std::size_t stages(std::size_t k) { return (k + kUnit.k - 1) / kUnit.k * kUnitStages; }
  static std::size_t panel_bytes(std::size_t k) { return stages(k) / kUnitStages * kUnitBytes; }
};

struct Q8_0 : TileUnits<Codes<scales::Halves, 8, Minus<128>>> {
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, const std::byte* ahead,
                                   Hook hook) {
    const std::byte* unit = panel + stage * kUnitBytes;
    // Bits 8..15 of a mantissa: 1 + (code + 128) / 2^15. The addend -(2^15 + 128) * scale = -257 * 2^7 * scale is
    // exact.
    alignas(64) float scale[2][16], zero[2][16];
    for (std::size_t t = 0; t < 2; ++t) {
      const __m512 d = leading_bits<9>(_mm512_mul_ps(load_halves(unit + 32 * t), _mm512_set1_ps(kCutOffRaise)));
      _mm512_store_ps(scale[t], _mm512_mul_ps(d, _mm512_set1_ps(0x1p15f)));
      _mm512_store_ps(zero[t], _mm512_mul_ps(d, _mm512_set1_ps(-0x1p15f - 128)));
    }
    keep_in_memory(scale);
    keep_in_memory(zero);
    const Mantissas<1> mantissas(1);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      prefetch<kStageBytes>(ahead, r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      const __m512i codes = _mm512_xor_si512(load_line(unit + kLine + line), bytes(128));
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const __m512 s = _mm512_set1_ps(scale[t][r]), z = _mm512_set1_ps(zero[t][r]);
        store_line(tiles + static_cast<std::size_t>(t) * kTile + line,
                   cut_off_pairs(_mm512_fmadd_ps(mantissas(codes, 32 * t), s, z),
                                 _mm512_fmadd_ps(mantissas(codes, 32 * t + 16), s, z)));
      }
    }
  }
};

// Scales of groups of 32: load(unit, run, d, min) gives the scales d of runs `run` and `run` + 1 of a unit, and the
// addends min, raised because they are truncated, too.
template <class Scales>
struct LoadScales;
template <>
struct LoadScales<scales::Halves> {
  TROUPE_INLINE static void load(const std::byte* unit, std::size_t run, float (&d)[2][16], float (&)[2][16]) {
    for (std::size_t t = 0; t < 2; ++t) _mm512_store_ps(d[t], load_halves(unit + (run + t) * 32));
  }
};
template <>
struct LoadScales<scales::HalvesAndMins> {
  TROUPE_INLINE static void load(const std::byte* unit, std::size_t run, float (&d)[2][16], float (&min)[2][16]) {
    for (std::size_t t = 0; t < 2; ++t) {
      _mm512_store_ps(d[t], load_halves(unit + (run + t) * 32));
      const __m512 m = load_halves(unit + scales::HalvesAndMins::kTilesK + (run + t) * 32);
      _mm512_store_ps(min[t], _mm512_mul_ps(m, _mm512_set1_ps(kCutOffRaise)));
    }
  }
};
template <>
struct LoadScales<scales::Runs> {
  TROUPE_INLINE static void load(const std::byte* unit, std::size_t run, float (&d)[2][16], float (&)[2][16]) {
    for (std::size_t t = 0; t < 2; ++t)
      _mm512_store_ps(d[t], _mm512_mul_ps(load_halves(unit), signed_bytes(unit + kRunScales + 16 * (run + t))));
  }
};
template <>
struct LoadScales<scales::Powers> {  // half the power of two, as in matmul_int8_512.h
  TROUPE_INLINE static void load(const std::byte* unit, std::size_t run, float (&d)[2][16], float (&)[2][16]) {
    for (std::size_t t = 0; t < 2; ++t) {
      const auto* e = reinterpret_cast<const __m128i*>(unit + 16 * (run + t));
      const __m512i exponents = _mm512_cvtepu8_epi32(_mm_subs_epu8(_mm_loadu_si128(e), _mm_set1_epi8(1)));
      _mm512_store_si512(d[t], _mm512_slli_epi32(exponents, 23));
    }
  }
};

// The values of the codes from 0 to 15. With a fifth bit they are 16 larger.
template <class Values>
struct FirstValues;
template <int offset>
struct FirstValues<Minus<offset>> {
  TROUPE_INLINE static __m512 get() { return _mm512_sub_ps(ascending(), _mm512_set1_ps(offset)); }
};
template <const std::int8_t (&values)[16]>
struct FirstValues<Among<values>> {
  TROUPE_INLINE static __m512 get() { return signed_bytes(reinterpret_cast<const std::byte*>(values)); }
};

// 4- and 5-bit codes: their values times the scale of a group of 32, plus the group's minimum if the type has one.
template <class Packing>
struct Groups32 : TileUnits<Packing> {
  using Base = TileUnits<Packing>;
  using Scales = typename Packing::Scales;
  static constexpr bool kFifthBit = Packing::kBits == 5;
  static_assert(Scales::kRunK == 32 && (kFifthBit || Packing::kBits == 4));
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, const std::byte* ahead,
                                   Hook hook) {
    const std::byte* unit = panel + stage / Base::kUnitStages * Base::kUnitBytes;
    const std::size_t run = stage % Base::kUnitStages * 2;
    const __m512 raise = _mm512_set1_ps(kCutOffRaise);
    const __m512 first_values = FirstValues<typename Packing::Values>::get();
    const __m512 values = _mm512_mul_ps(first_values, raise);
    const __m512 high_values = _mm512_mul_ps(_mm512_add_ps(first_values, _mm512_set1_ps(16)), raise);
    alignas(64) float d[2][16], min[2][16];
    LoadScales<Scales>::load(unit, run, d, min);
    keep_in_memory(d);
    if constexpr (Scales::kHasMin) keep_in_memory(min);
    const std::byte* fifths = unit + Base::kUnit.header + run * kLine;
    const std::byte* lines =
        unit + Base::kUnit.header + (kFifthBit ? Base::kUnit.k / 32 * kLine : 0) + run / 4 * kTilesNibbles;
    const int first = static_cast<int>(run % 4 * 4);
    const CodeIndices indices[2] = {CodeIndices(first), CodeIndices(first + 4)};
    const __m512i upper_word = _mm512_set1_epi16(0x0302);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      prefetch<Base::kStageBytes>(ahead, r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
#pragma GCC unroll 2
      for (std::size_t t = 0; t < 2; ++t) {
        const auto scaled = [&](__m512 of) __attribute__((always_inline)) {
          const __m512 scale = _mm512_set1_ps(d[t][r]);
          if constexpr (Scales::kHasMin)
            return _mm512_fmadd_ps(of, scale, _mm512_set1_ps(min[t][r]));
          else
            return _mm512_mul_ps(of, scale);
        };
        const __m512i index = indices[t](lines + line, 0x3c, upper_word);
        if constexpr (kFifthBit)
          store_line(tiles + t * kTile + line,
                     look_up(with_bit(index, fifths + t * kLine, r, 0x40), scaled(values), scaled(high_values)));
        else
          store_line(tiles + t * kTile + line, look_up(index, scaled(values)));
      }
    }
  }
};

// Codes of 2 or 3 bits with a scale per 16 k: the values for the two halves of a run alternate in one lookup vector,
// and their scales are a pair of floats for each row, broadcast by one load.
template <class Packing>
struct HalfRuns : TileUnits<Packing> {
  using Base = TileUnits<Packing>;
  static constexpr bool third_bit = Packing::kBits == 3, has_min = Packing::Scales::kHasMin;
  static_assert(third_bit || Packing::kBits == 2);
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, const std::byte* ahead,
                                   Hook hook) {
    const std::byte* unit = panel + stage / 4 * Base::kUnitBytes;
    const std::size_t run = stage % 4 * 2;
    const __m512 codes = _mm512_setr_ps(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512 values =
        _mm512_mul_ps(_mm512_sub_ps(codes, _mm512_set1_ps(Packing::Values::kOffset)), _mm512_set1_ps(kCutOffRaise));
    alignas(64) double d[2][16], min[2][16];  // pairs of floats
    for (std::size_t t = 0; t < 2; ++t) {
      const std::byte* scales = unit + kRunScales + 32 * (run + t);
      if constexpr (has_min) {
        store_pairs(scale_of(unit, scales), scale_of(unit, scales + 16), d[t]);
        store_pairs(min_of(unit, scales), min_of(unit, scales + 16), min[t]);
      } else {
        const __m512 of_unit = load_halves(unit);
        store_pairs(_mm512_mul_ps(of_unit, signed_bytes(scales)), _mm512_mul_ps(of_unit, signed_bytes(scales + 16)),
                    d[t]);
      }
    }
    keep_in_memory(d);
    if constexpr (has_min) keep_in_memory(min);
    const std::byte* thirds = unit + kRuns + run * kLine;
    const std::byte* lines = unit + kRuns + (third_bit ? 8 * kLine : 0);
    // Indices: the code from bit 3 on, below it the half of the run.
    const int first = static_cast<int>(2 * run) - 1;
    const CodeIndices indices[2] = {CodeIndices(first), CodeIndices(first + 2)};
    const __m512i halves = _mm512_set1_epi32(0x07060302);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      prefetch<Base::kStageBytes>(ahead, r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
#pragma GCC unroll 2
      for (std::size_t t = 0; t < 2; ++t) {
        const __m512 scale = _mm512_castpd_ps(_mm512_set1_pd(d[t][r]));
        __m512 table;
        if constexpr (has_min)
          table = _mm512_fmadd_ps(values, scale, _mm512_castpd_ps(_mm512_set1_pd(min[t][r])));
        else
          table = _mm512_mul_ps(values, scale);
        __m512i index = indices[t](lines + line, 0x18, halves);
        if constexpr (third_bit) index = with_bit(index, thirds + t * kLine, r, 0x20);
        store_line(tiles + t * kTile + line, look_up(index, table));
      }
    }
  }

 private:
  // The scales of a half run of Q2_K.
  TROUPE_INLINE static __m512 scale_of(const std::byte* unit, const std::byte* scales) {
    const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
    return _mm512_mul_ps(load_halves(unit), _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15))));
  }
  TROUPE_INLINE static __m512 min_of(const std::byte* unit, const std::byte* scales) {
    const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
    const __m512 m = _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4));
    return _mm512_mul_ps(_mm512_mul_ps(load_halves(unit + kMinOffset), m), _mm512_set1_ps(-kCutOffRaise));
  }
  TROUPE_INLINE static void store_pairs(__m512 a, __m512 b, double (&to)[16]) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_store_pd(to, _mm512_castps_pd(_mm512_permutex2var_ps(a, low, b)));
    _mm512_store_pd(to + 8, _mm512_castps_pd(_mm512_permutex2var_ps(a, high, b)));
  }
};

struct Q6_K : TileUnits<Codes<scales::HalfRuns, 6, Minus<32>>> {
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, const std::byte* ahead,
                                   Hook hook) {
    const std::byte* unit = panel + stage / 4 * kUnitBytes;
    const std::size_t run = stage % 4 * 2;
    // Bits 16..21 of a mantissa: 1 + code / 2^7. The addend -(2^7 + 32) * scale = -5 * 2^5 * scale is exact.
    const __m512 d = _mm512_mul_ps(load_halves(unit), _mm512_set1_ps(kCutOffRaise));
    alignas(64) float scale[4][16], zero[4][16];
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512 s = leading_bits<3>(_mm512_mul_ps(d, signed_bytes(unit + kRunScales + 16 * (2 * run + i))));
      _mm512_store_ps(scale[i], _mm512_mul_ps(s, _mm512_set1_ps(0x1p7f)));
      _mm512_store_ps(zero[i], _mm512_mul_ps(s, _mm512_set1_ps(-0x1p7f - 32)));
    }
    keep_in_memory(scale);
    keep_in_memory(zero);
    const std::byte* lines = unit + kRuns + run / 4 * kTilesNibbles;
    const JoinedCodes joined(run);
    const Mantissas<2> mantissas(4);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      prefetch<kStageBytes>(ahead, r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      const __m512i codes = joined(lines + line, unit + kTilesHighBits + line);
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const auto value = [&](int half) __attribute__((always_inline)) {
          return _mm512_fmadd_ps(mantissas(codes, t + 2 * half), _mm512_set1_ps(scale[2 * t + half][r]),
                                 _mm512_set1_ps(zero[2 * t + half][r]));
        };
        store_line(tiles + static_cast<std::size_t>(t) * kTile + line, cut_off_pairs(value(0), value(1)));
      }
    }
  }
};

// Codes 0..2 are multiplied unsigned; the sum of the activations is subtracted at the end. One integer sum over all of
// k.
struct TQ {
  static constexpr std::size_t kStageTiles = 1, kStageSteps = 1, kStageBytes = kTilesTQUnit / 4;
  static constexpr bool kSplit = false, kIntegers = true;
  static std::size_t stages(std::size_t k) { return k / 64; }
  static std::size_t panel_bytes(std::size_t k) { return kLine + (k + 255) / 256 * kTilesTQUnit; }
  template <class Hook>
  TROUPE_INLINE static void expand(const std::byte* panel, std::size_t stage, std::byte* tiles, const std::byte* ahead,
                                   Hook hook) {
    const std::byte* unit = panel + kLine + stage / 4 * kTilesTQUnit;
    const __m512i mask = bytes(3), turn = _mm512_set1_epi16(static_cast<short>(stage % 4 * 2));
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      hook(r);
      prefetch<kStageBytes>(ahead, r);
      const std::size_t line = static_cast<std::size_t>(r) * kLine;
      store_line(tiles + line, _mm512_and_si512(_mm512_srlv_epi16(load_line(unit + line), turn), mask));
    }
  }
};

template <class Packing>
constexpr auto tile_type_of() {
  if constexpr (Packing::kAmxActivation == Activation::bf16_split_tiles)
    return F16{};
  else if constexpr (kIsNumbers<Packing>)
    return Bf16{};
  else if constexpr (kIsTernary<Packing>)
    return TQ{};
  else if constexpr (std::is_same_v<Packing, Q8_0::Packing>)
    return Q8_0{};
  else if constexpr (std::is_same_v<Packing, Q6_K::Packing>)
    return Q6_K{};
  else if constexpr (Packing::Scales::kRunK == 16)
    return HalfRuns<Packing>{};
  else
    return Groups32<Packing>{};
}
template <class Packing>
using TileType = decltype(tile_type_of<Packing>());

}  // namespace
}  // namespace troupe::kernels::amx
