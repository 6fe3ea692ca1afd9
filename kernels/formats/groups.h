// The groups of weights in model files, byte for byte, and functions that read them: one type after the other.
//
// Formats: ggml's block_q8_0 ... block_tq2_0, and bitnet.cpp's I2_S. All fields are bytes, so the structs have no
// padding and may lie anywhere; multi-byte fields are little-endian.
//
// codes_of: a group's codes, unsigned, in the order of the weights. scale_of, scale_min_of: what is stored for run
// `run` of it. d, m and dmin are float16. Everything is static: safe to include in any file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/half.h"

namespace troupe::kernels {

// ---- Numbers: all bits of the exponent are set in infinity and NaN ---------------------------------------------

struct GroupF32 {
  static constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint8_t bits[4];
};
struct GroupF16 {
  static constexpr std::uint16_t kExponent = 0x7c00;
  std::uint8_t bits[2];
};
struct GroupBF16 {
  static constexpr std::uint16_t kExponent = 0x7f80;
  std::uint8_t bits[2];
};
static inline float value_of(const GroupF32& number) { return load<float>(number.bits); }
static inline float value_of(const GroupF16& number) { return load_half(number.bits); }
static inline float value_of(const GroupBF16& number) { return float_of_bf16(load<std::uint16_t>(number.bits)); }
// Store a finite value, rounded to nearest even.
static inline void set_value(GroupF32& number, float value) { store(number.bits, value); }
static inline void set_value(GroupF16& number, float value) { store(number.bits, half_of_float(value)); }
static inline void set_value(GroupBF16& number, float value) {
  const std::uint32_t bits = bits_of_float(value);
  store(number.bits, static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16));
}

// ---- Codes of several groups -----------------------------------------------------------------------------------

// Reads 32 codes: low nibbles first.
static inline void nibbles_of_32(const std::uint8_t nibbles[16], std::uint8_t codes[32]) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = nibbles[i] & 0x0f;
    codes[i + 16] = nibbles[i] >> 4;
  }
}
// The same with a fifth bit: bit i of `high_bits` is the fifth bit of weight i.
static inline void fives_of_32(const std::uint8_t nibbles[16], const std::uint8_t high_bits[4],
                               std::uint8_t codes[32]) {
  nibbles_of_32(nibbles, codes);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<std::uint8_t>(((high_bits[i / 8] >> (i % 8)) & 1) << 4);
}
// Reads 256 codes of two bits: 32 bytes hold four runs of 32.
static inline void twos_of_256(const std::uint8_t twos[64], std::uint8_t codes[256]) {
  for (int run = 0; run < 8; ++run)
    for (int i = 0; i < 32; ++i) codes[32 * run + i] = (twos[run / 4 * 32 + i] >> (2 * (run % 4))) & 3;
}
// Reads 256 codes: 32 bytes hold two runs of 32, low nibbles first.
static inline void nibbles_of_256(const std::uint8_t nibbles[128], std::uint8_t codes[256]) {
  for (int half = 0; half < 4; ++half)
    for (int i = 0; i < 32; ++i) {
      codes[half * 64 + i] = nibbles[half * 32 + i] & 0x0f;
      codes[half * 64 + 32 + i] = nibbles[half * 32 + i] >> 4;
    }
}
// Adds bit `bit` to 256 codes: bit r of byte i is that of weight i of run r.
static inline void add_bit_of_256(const std::uint8_t high_bits[32], int bit, std::uint8_t codes[256]) {
  for (int run = 0; run < 8; ++run)
    for (int i = 0; i < 32; ++i) codes[32 * run + i] |= static_cast<std::uint8_t>(((high_bits[i] >> run) & 1) << bit);
}

// ---- Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 ------------------------------------------------------------------------------

struct GroupQ8_0 {  // 32 weights: w = d * code; codes_of gives code + 128
  std::uint8_t d[2];
  std::int8_t codes[32];
};
static inline void codes_of(const GroupQ8_0& group, std::uint8_t codes[32]) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>(group.codes[i] + 128);
}

struct GroupQ4_0 {  // 32 weights: w = d * (code - 8); low nibbles first half, high nibbles second half
  std::uint8_t d[2];
  std::uint8_t nibbles[16];
};
static inline void codes_of(const GroupQ4_0& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }

struct GroupQ4_1 {  // 32 weights: w = d * code + m; nibbles as in Q4_0
  std::uint8_t d[2];
  std::uint8_t m[2];
  std::uint8_t nibbles[16];
};
static inline void codes_of(const GroupQ4_1& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }

struct GroupQ5_0 {  // 32 weights: w = d * (code - 16); nibbles as in Q4_0
  std::uint8_t d[2];
  std::uint8_t high_bits[4];  // bit i of the 32: the fifth bit of weight i
  std::uint8_t nibbles[16];
};
static inline void codes_of(const GroupQ5_0& group, std::uint8_t codes[32]) {
  fives_of_32(group.nibbles, group.high_bits, codes);
}

struct GroupQ5_1 {  // 32 weights: w = d * code + m; codes as in Q5_0
  std::uint8_t d[2];
  std::uint8_t m[2];
  std::uint8_t high_bits[4];
  std::uint8_t nibbles[16];
};
static inline void codes_of(const GroupQ5_1& group, std::uint8_t codes[32]) {
  fives_of_32(group.nibbles, group.high_bits, codes);
}

// ---- IQ4_NL, IQ4_XS --------------------------------------------------------------------------------------------

struct GroupIQ4_NL {  // 32 weights: w = d * kIQ4_NLValues[code]; nibbles as in Q4_0
  std::uint8_t d[2];
  std::uint8_t nibbles[16];
};
static constexpr std::int8_t kIQ4_NLValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};
static inline void codes_of(const GroupIQ4_NL& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }

struct GroupIQ4_XS {  // 256 weights in 8 runs of 32: w = d * scale * kIQ4_NLValues[code]
  std::uint8_t d[2];
  std::uint8_t scales_high[2];  // two bits for each run, the upper ones of scale + 32
  std::uint8_t scales_low[4];   // the lower four bits
  std::uint8_t nibbles[128];    // run by run as in Q4_0
};
static inline void codes_of(const GroupIQ4_XS& group, std::uint8_t codes[256]) {
  for (int run = 0; run < 8; ++run) nibbles_of_32(group.nibbles + 16 * run, codes + 32 * run);
}
static inline int scale_of(const GroupIQ4_XS& group, std::size_t run) {  // -32 to 31
  const int low = (group.scales_low[run / 2] >> (run % 2 * 4)) & 15;
  const int high = (group.scales_high[run / 4] >> (run % 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

// ---- MXFP4 -----------------------------------------------------------------------------------------------------

// OCP microscaling FP4. 32 weights: w = 2^(e - 127) * kMXFP4Values[code] / 2; nibbles as in Q4_0. Every e is a power of
// two, as in ggml, even 255 (NaN in the standard), which gives infinities with the largest codes.
struct GroupMXFP4 {
  std::uint8_t e;
  std::uint8_t nibbles[16];
};
static constexpr std::int8_t kMXFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
static inline void codes_of(const GroupMXFP4& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }
// 2^(e - 127) / 2; exact, also if it is denormal.
static inline float half_of_e8m0(std::uint8_t e) {
  return float_of_bits(e < 2 ? std::uint32_t{0x00200000} << e : static_cast<std::uint32_t>(e - 1) << 23);
}

// ---- The K types -----------------------------------------------------------------------------------------------

struct ScaleMin {
  std::uint8_t scale;
  std::uint8_t min;
};

struct GroupQ2_K {          // 256 weights in 16 runs of 16: w = d * scale * code - dmin * min
  std::uint8_t scales[16];  // scale in the low, min in the high nibble
  std::uint8_t codes[64];   // as in TQ2_0
  std::uint8_t d[2];
  std::uint8_t dmin[2];
};
static inline void codes_of(const GroupQ2_K& group, std::uint8_t codes[256]) { twos_of_256(group.codes, codes); }

struct GroupQ3_K {             // 256 weights in 16 runs of 16: w = d * scale * (code - 4)
  std::uint8_t high_bits[32];  // bit r of byte i: weight i of 32 weights r
  std::uint8_t codes[64];      // two bits, as in TQ2_0
  std::uint8_t scales[12];     // 16 of 6 bits, scale + 32
  std::uint8_t d[2];
};
static inline void codes_of(const GroupQ3_K& group, std::uint8_t codes[256]) {
  twos_of_256(group.codes, codes);
  add_bit_of_256(group.high_bits, 2, codes);
}
static inline int scale_of(const GroupQ3_K& group, std::size_t run) {  // -32 to 31
  const int low = (group.scales[run % 8] >> (run / 8 * 4)) & 15;
  const int high = (group.scales[8 + run % 4] >> (run / 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

struct GroupQ4_K {  // 256 weights in 8 runs of 32: w = d * scale * code - dmin * min
  std::uint8_t d[2];
  std::uint8_t dmin[2];
  std::uint8_t scales[12];    // 8 scales and 8 mins of 6 bits
  std::uint8_t nibbles[128];  // per 64 weights 32 bytes: low nibbles the first run, high nibbles the second
};
static inline void codes_of(const GroupQ4_K& group, std::uint8_t codes[256]) { nibbles_of_256(group.nibbles, codes); }
static inline ScaleMin scale_min_of(const std::uint8_t scales[12], std::size_t run) {  // of Q4_K and Q5_K
  if (run < 4) return {static_cast<std::uint8_t>(scales[run] & 63), static_cast<std::uint8_t>(scales[run + 4] & 63)};
  return {static_cast<std::uint8_t>((scales[run + 4] & 0x0f) | ((scales[run - 4] >> 6) << 4)),
          static_cast<std::uint8_t>((scales[run + 4] >> 4) | ((scales[run] >> 6) << 4))};
}

struct GroupQ5_K {  // as Q4_K, with a fifth bit
  std::uint8_t d[2];
  std::uint8_t dmin[2];
  std::uint8_t scales[12];
  std::uint8_t high_bits[32];  // bit r of byte i: weight i of run r
  std::uint8_t nibbles[128];
};
static inline void codes_of(const GroupQ5_K& group, std::uint8_t codes[256]) {
  nibbles_of_256(group.nibbles, codes);
  add_bit_of_256(group.high_bits, 4, codes);
}

struct GroupQ6_K {  // 256 weights in 16 runs of 16: w = d * scale * (code - 32)
  std::uint8_t nibbles[128];
  std::uint8_t high_bits[64];  // 2 bits each
  std::int8_t scales[16];
  std::uint8_t d[2];
};
static inline void codes_of(const GroupQ6_K& group, std::uint8_t codes[256]) {
  for (int run = 0; run < 8; ++run) {  // four runs of 32 share 32 high bytes, two of them 32 bytes of nibbles
    const int half = run / 4, quarter = run % 4;
    const std::uint8_t* nibbles = group.nibbles + half * 64 + (quarter & 1) * 32;
    const std::uint8_t* high_bits = group.high_bits + half * 32;
    const int nibble = quarter >= 2 ? 4 : 0;
    for (int i = 0; i < 32; ++i)
      codes[32 * run + i] =
          static_cast<std::uint8_t>(((nibbles[i] >> nibble) & 0x0f) | (((high_bits[i] >> (2 * quarter)) & 3) << 4));
  }
}
static inline int scale_of(const GroupQ6_K& group, std::size_t run) { return group.scales[run]; }

// ---- Ternary types ---------------------------------------------------------------------------------------------

struct GroupTQ1_0 {  // 256 weights: w = d * (digit - 1); digits base 3, five to a byte (four in the tail)
  std::uint8_t fives[48];
  std::uint8_t fours[4];
  std::uint8_t d[2];
};
// The first digit of a base-3 fraction after its byte is multiplied by 3^n (mod 256).
static inline std::uint8_t ternary_digit(std::uint8_t byte, std::uint8_t power_of_3) {
  const auto shifted = static_cast<std::uint8_t>(byte * power_of_3);
  return static_cast<std::uint8_t>((shifted * 3) >> 8);
}
static inline void codes_of(const GroupTQ1_0& group, std::uint8_t codes[256]) {
  constexpr std::uint8_t kPowersOf3[5] = {1, 3, 9, 27, 81};
  std::uint8_t* out = codes;
  for (const std::uint8_t power : kPowersOf3)
    for (int i = 0; i < 32; ++i) *out++ = ternary_digit(group.fives[i], power);
  for (const std::uint8_t power : kPowersOf3)
    for (int i = 32; i < 48; ++i) *out++ = ternary_digit(group.fives[i], power);
  for (int n = 0; n < 4; ++n)
    for (const std::uint8_t byte : group.fours) *out++ = ternary_digit(byte, kPowersOf3[n]);
}

struct GroupTQ2_0 {  // 256 weights: w = d * (code - 1); two bits each
  std::uint8_t codes[64];
  std::uint8_t d[2];
};
static inline void codes_of(const GroupTQ2_0& group, std::uint8_t codes[256]) { twos_of_256(group.codes, codes); }
// Not 0 if there is a code 3, which TQ2_0 has bits for.
static inline std::uint8_t threes_in(const GroupTQ2_0& group) {
  std::uint8_t threes = 0;
  for (const std::uint8_t four : group.codes) threes |= static_cast<std::uint8_t>(four & (four >> 1) & 0x55);
  return threes;
}

// 128 weights: w = code - 1, times the tensor's scale; byte j holds weights j, j + 32, j + 64 and j + 96 in
// bits 6-7, 4-5, 2-3 and 0-1. Code 3, which no converter writes, is a weight of 0.
struct GroupI2_S {
  static constexpr std::uint32_t kTailBytes = 32;  // after the groups of a tensor: WeightTypeInfo::tail_bytes
  std::uint8_t codes[32];
};
static inline void codes_of(const GroupI2_S& group, std::uint8_t codes[128]) {
  for (int run = 0; run < 4; ++run)
    for (int i = 0; i < 32; ++i) {
      const int code = (group.codes[i] >> (6 - 2 * run)) & 3;
      codes[32 * run + i] = static_cast<std::uint8_t>(code - (2 & -(code >> 1 & code)));  // 3 becomes 1
    }
}

}  // namespace troupe::kernels
