// The groups of GGUF's quantized types, byte for byte, and functions to read their codes and scales.
//
// Formats: ggml's block_q8_0 ... block_tq2_0, and bitnet.cpp's I2_S. All fields are bytes, so the structs have
// no padding and may lie anywhere; multi-byte fields are little-endian.
#pragma once

#include <cstdint>

namespace troupe::kernels {

struct GroupQ8_0 {  // 32 weights: w = d * code
  std::uint8_t d[2];
  std::int8_t codes[32];
};

struct GroupQ4_0 {  // 32 weights: w = d * (code - 8); low nibbles first half, high nibbles second half
  std::uint8_t d[2];
  std::uint8_t nibbles[16];
};

struct GroupQ4_1 {  // 32 weights: w = d * code + m; nibbles as in Q4_0
  std::uint8_t d[2];
  std::uint8_t m[2];
  std::uint8_t nibbles[16];
};

struct GroupQ5_0 {  // 32 weights: w = d * (code - 16); nibbles as in Q4_0
  std::uint8_t d[2];
  std::uint8_t high_bits[4];  // bit i of the 32: the fifth bit of weight i
  std::uint8_t nibbles[16];
};

struct GroupQ5_1 {  // 32 weights: w = d * code + m; codes as in Q5_0
  std::uint8_t d[2];
  std::uint8_t m[2];
  std::uint8_t high_bits[4];
  std::uint8_t nibbles[16];
};

struct GroupIQ4_NL {  // 32 weights: w = d * kIQ4_NLValues[code]; nibbles as in Q4_0
  std::uint8_t d[2];
  std::uint8_t nibbles[16];
};

// The values of the codes of IQ4_NL.
static constexpr std::int8_t kIQ4_NLValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};

struct GroupIQ4_XS {  // 256 weights in 8 runs of 32: w = d * scale * kIQ4_NLValues[code]
  std::uint8_t d[2];
  std::uint8_t scales_high[2];  // two bits for each run, the upper ones of scale + 32
  std::uint8_t scales_low[4];   // the lower four bits
  std::uint8_t nibbles[128];    // run by run as in Q4_0
};

// OCP microscaling FP4. 32 weights: w = 2^(e - 127) * kMXFP4Values[code] / 2; nibbles as in Q4_0. Every e is a power of
// two, as in ggml, even 255 (NaN in the standard), which gives infinities with the largest codes.
struct GroupMXFP4 {
  std::uint8_t e;
  std::uint8_t nibbles[16];
};

// The values of the codes of MXFP4, doubled.
static constexpr std::int8_t kMXFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct GroupQ2_K {          // 256 weights in 16 runs of 16: w = d * scale * code - dmin * min
  std::uint8_t scales[16];  // scale in the low, min in the high nibble
  std::uint8_t codes[64];   // as in TQ2_0
  std::uint8_t d[2];
  std::uint8_t dmin[2];
};

struct GroupQ3_K {             // 256 weights in 16 runs of 16: w = d * scale * (code - 4)
  std::uint8_t high_bits[32];  // bit r of byte i: weight i of 32 weights r
  std::uint8_t codes[64];      // two bits, as in TQ2_0
  std::uint8_t scales[12];     // 16 of 6 bits, scale + 32
  std::uint8_t d[2];
};

struct GroupQ4_K {  // 256 weights in 8 runs of 32: w = d * scale * code - dmin * min
  std::uint8_t d[2];
  std::uint8_t dmin[2];
  std::uint8_t scales[12];    // 8 scales and 8 mins of 6 bits
  std::uint8_t nibbles[128];  // per 64 weights 32 bytes: low nibbles the first run, high nibbles the second
};

struct GroupQ5_K {  // as Q4_K, with a fifth bit
  std::uint8_t d[2];
  std::uint8_t dmin[2];
  std::uint8_t scales[12];
  std::uint8_t high_bits[32];  // bit r of byte i: weight i of run r
  std::uint8_t nibbles[128];
};

struct GroupQ6_K {  // 256 weights in 16 runs of 16: w = d * scale * (code - 32)
  std::uint8_t nibbles[128];
  std::uint8_t high_bits[64];  // 2 bits each
  std::int8_t scales[16];
  std::uint8_t d[2];
};

struct GroupTQ1_0 {  // 256 weights: w = d * (digit - 1); digits base 3, five to a byte (four in the tail)
  std::uint8_t fives[48];
  std::uint8_t fours[4];
  std::uint8_t d[2];
};

struct GroupTQ2_0 {  // 256 weights: w = d * (code - 1); two bits each
  std::uint8_t codes[64];
  std::uint8_t d[2];
};

// 128 weights: w = code - 1, times the tensor's scale; byte j holds weights j, j + 32, j + 64 and j + 96 in
// bits 6-7, 4-5, 2-3 and 0-1. Code 3, which no converter writes, is a weight of 0.
struct GroupI2_S {
  std::uint8_t codes[32];
};

static_assert(sizeof(GroupQ8_0) == 34 && sizeof(GroupQ4_0) == 18 && sizeof(GroupQ4_1) == 20 &&
              sizeof(GroupIQ4_NL) == 18 && sizeof(GroupQ4_K) == 144 && sizeof(GroupQ5_K) == 176 &&
              sizeof(GroupQ6_K) == 210 && sizeof(GroupTQ1_0) == 54 && sizeof(GroupTQ2_0) == 66 &&
              sizeof(GroupI2_S) == 32);
static_assert(sizeof(GroupQ5_0) == 22 && sizeof(GroupQ5_1) == 24 && sizeof(GroupIQ4_XS) == 136 &&
              sizeof(GroupMXFP4) == 17 && sizeof(GroupQ2_K) == 84 && sizeof(GroupQ3_K) == 110);

// Reads the codes of a group. Codes are unsigned, in the order of the weights (Q8_0: code + 128; I2_S: 1 for code 3).
void codes_of(const GroupQ8_0& group, std::uint8_t codes[32]);
void codes_of(const GroupQ4_0& group, std::uint8_t codes[32]);
void codes_of(const GroupQ4_1& group, std::uint8_t codes[32]);
void codes_of(const GroupQ5_0& group, std::uint8_t codes[32]);
void codes_of(const GroupQ5_1& group, std::uint8_t codes[32]);
void codes_of(const GroupIQ4_NL& group, std::uint8_t codes[32]);
void codes_of(const GroupIQ4_XS& group, std::uint8_t codes[256]);
void codes_of(const GroupMXFP4& group, std::uint8_t codes[32]);
void codes_of(const GroupQ2_K& group, std::uint8_t codes[256]);
void codes_of(const GroupQ3_K& group, std::uint8_t codes[256]);
void codes_of(const GroupQ4_K& group, std::uint8_t codes[256]);
void codes_of(const GroupQ5_K& group, std::uint8_t codes[256]);
void codes_of(const GroupQ6_K& group, std::uint8_t codes[256]);
void codes_of(const GroupTQ1_0& group, std::uint8_t codes[256]);
void codes_of(const GroupTQ2_0& group, std::uint8_t codes[256]);
void codes_of(const GroupI2_S& group, std::uint8_t codes[128]);

// The 6-bit scale and min of run `run` (0..7) of a Q4_K or Q5_K group.
struct ScaleMin {
  std::uint8_t scale;
  std::uint8_t min;
};
[[nodiscard]] ScaleMin scale_min_of(const std::uint8_t scales[12], int run);

// The scale of run `run`, -32 to 31.
[[nodiscard]] int scale_of(const GroupIQ4_XS& group, int run);
[[nodiscard]] int scale_of(const GroupQ3_K& group, int run);

// 2^(e - 127) / 2; exact, also if it is denormal.
[[nodiscard]] float half_of_e8m0(std::uint8_t e);

}  // namespace troupe::kernels
