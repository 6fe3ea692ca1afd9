// The groups of GGUF's quantized types, byte for byte, and how the codes and scales come out of them.
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

struct GroupIQ4_NL {  // 32 weights: w = d * kIQ4_NLValues[code]; nibbles as in Q4_0
  std::uint8_t d[2];
  std::uint8_t nibbles[16];
};

// What the codes of IQ4_NL stand for.
static constexpr std::int8_t kIQ4_NLValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};

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

// A group taken apart. Codes are unsigned, in the order of the weights (Q8_0: code + 128; I2_S: 1 for code 3).
void codes_of(const GroupQ8_0& group, std::uint8_t codes[32]);
void codes_of(const GroupQ4_0& group, std::uint8_t codes[32]);
void codes_of(const GroupQ4_1& group, std::uint8_t codes[32]);
void codes_of(const GroupIQ4_NL& group, std::uint8_t codes[32]);
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

}  // namespace troupe::kernels
