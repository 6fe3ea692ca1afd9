#include "kernels/formats/weight_type.h"

#include <cstring>

#include "config/assert.h"
#include "kernels/formats/groups.h"
#include "kernels/formats/half.h"

namespace troupe::kernels {
namespace {

constexpr WeightTypeInfo kTypes[] = {
    {WeightType::f32, "F32", 0, 1, 4},           {WeightType::f16, "F16", 1, 1, 2},
    {WeightType::bf16, "BF16", 30, 1, 2},        {WeightType::q8_0, "Q8_0", 8, 32, 34},
    {WeightType::q4_0, "Q4_0", 2, 32, 18},       {WeightType::q4_1, "Q4_1", 3, 32, 20},
    {WeightType::q5_0, "Q5_0", 6, 32, 22},       {WeightType::q5_1, "Q5_1", 7, 32, 24},
    {WeightType::iq4_nl, "IQ4_NL", 20, 32, 18},  {WeightType::iq4_xs, "IQ4_XS", 23, 256, 136},
    {WeightType::mxfp4, "MXFP4", 39, 32, 17},    {WeightType::q2_k, "Q2_K", 10, 256, 84},
    {WeightType::q3_k, "Q3_K", 11, 256, 110},    {WeightType::q4_k, "Q4_K", 12, 256, 144},
    {WeightType::q5_k, "Q5_K", 13, 256, 176},    {WeightType::q6_k, "Q6_K", 14, 256, 210},
    {WeightType::tq1_0, "TQ1_0", 34, 256, 54},   {WeightType::tq2_0, "TQ2_0", 35, 256, 66},
    {WeightType::i2_s, "I2_S", 36, 128, 32, 32},
};

// The first digit of a base-3 fraction after its byte is multiplied by 3^n (mod 256).
std::uint8_t ternary_digit(std::uint8_t byte, std::uint8_t power_of_3) {
  const auto shifted = static_cast<std::uint8_t>(byte * power_of_3);
  return static_cast<std::uint8_t>((shifted * 3) >> 8);
}
constexpr std::uint8_t kPowersOf3[5] = {1, 3, 9, 27, 81};

// Reads 32 codes: low nibbles first.
void nibbles_of_32(const std::uint8_t nibbles[16], std::uint8_t codes[32]) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = nibbles[i] & 0x0f;
    codes[i + 16] = nibbles[i] >> 4;
  }
}

// The same with a fifth bit: bit i of `high_bits` is the fifth bit of weight i.
void fives_of_32(const std::uint8_t nibbles[16], const std::uint8_t high_bits[4], std::uint8_t codes[32]) {
  nibbles_of_32(nibbles, codes);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<std::uint8_t>(((high_bits[i / 8] >> (i % 8)) & 1) << 4);
}

// Reads 256 codes of two bits: 32 bytes hold four runs of 32.
void twos_of(const std::uint8_t twos[64], std::uint8_t codes[256]) {
  for (int run = 0; run < 8; ++run)
    for (int i = 0; i < 32; ++i) codes[32 * run + i] = (twos[run / 4 * 32 + i] >> (2 * (run % 4))) & 3;
}

void nibbles_of(const std::uint8_t nibbles[128], std::uint8_t codes[256]) {
  for (int half = 0; half < 4; ++half)
    for (int i = 0; i < 32; ++i) {
      codes[half * 64 + i] = nibbles[half * 32 + i] & 0x0f;
      codes[half * 64 + 32 + i] = nibbles[half * 32 + i] >> 4;
    }
}

void values_of(const GroupQ8_0& group, float* out) {
  const float d = load_half(group.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(group.codes[i]) * d;
}

template <class Group>
void values_around(int zero, const Group& group, float* out) {
  std::uint8_t codes[32];
  codes_of(group, codes);
  const float d = load_half(group.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(codes[i] - zero) * d;
}
void values_of(const GroupQ4_0& group, float* out) { values_around(8, group, out); }
void values_of(const GroupQ5_0& group, float* out) { values_around(16, group, out); }

template <class GroupWithM>
void values_from_m(const GroupWithM& group, float* out) {
  std::uint8_t codes[32];
  codes_of(group, codes);
  const float d = load_half(group.d), m = load_half(group.m);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(codes[i]) * d + m;
}
void values_of(const GroupQ4_1& group, float* out) { values_from_m(group, out); }
void values_of(const GroupQ5_1& group, float* out) { values_from_m(group, out); }

void values_of(const GroupIQ4_NL& group, float* out) {
  std::uint8_t codes[32];
  codes_of(group, codes);
  const float d = load_half(group.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(kIQ4_NLValues[codes[i]]);
}

void values_of(const GroupIQ4_XS& group, float* out) {
  std::uint8_t codes[256];
  codes_of(group, codes);
  const float d = load_half(group.d);
  for (int i = 0; i < 256; ++i)
    out[i] = d * static_cast<float>(scale_of(group, i / 32)) * static_cast<float>(kIQ4_NLValues[codes[i]]);
}

void values_of(const GroupMXFP4& group, float* out) {
  std::uint8_t codes[32];
  codes_of(group, codes);
  const float d = half_of_e8m0(group.e);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(kMXFP4Values[codes[i]]) * d;
}

void values_of(const GroupQ2_K& group, float* out) {
  std::uint8_t codes[256];
  codes_of(group, codes);
  const float d = load_half(group.d), dmin = load_half(group.dmin);
  for (int i = 0; i < 256; ++i) {
    const std::uint8_t both = group.scales[i / 16];
    out[i] = d * static_cast<float>(both & 15) * static_cast<float>(codes[i]) - dmin * static_cast<float>(both >> 4);
  }
}

void values_of(const GroupQ3_K& group, float* out) {
  std::uint8_t codes[256];
  codes_of(group, codes);
  const float d = load_half(group.d);
  for (int i = 0; i < 256; ++i)
    out[i] = d * static_cast<float>(scale_of(group, i / 16)) * static_cast<float>(codes[i] - 4);
}

template <class GroupQ4Or5K>
void values_with_min(const GroupQ4Or5K& group, float* out) {
  std::uint8_t codes[256];
  codes_of(group, codes);
  const float d = load_half(group.d);
  const float dmin = load_half(group.dmin);
  for (int run = 0; run < 8; ++run) {
    const ScaleMin s = scale_min_of(group.scales, run);
    const float scale = d * s.scale;
    const float min = dmin * s.min;
    for (int i = run * 32; i < run * 32 + 32; ++i) out[i] = scale * codes[i] - min;
  }
}
void values_of(const GroupQ4_K& group, float* out) { values_with_min(group, out); }
void values_of(const GroupQ5_K& group, float* out) { values_with_min(group, out); }

void values_of(const GroupQ6_K& group, float* out) {
  std::uint8_t codes[256];
  codes_of(group, codes);
  const float d = load_half(group.d);
  for (int i = 0; i < 256; ++i) {
    const int part = i / 16;
    out[i] = d * group.scales[part] * static_cast<float>(codes[i] - 32);
  }
}

template <class GroupTQ>
void ternary_values(const GroupTQ& group, float* out) {
  std::uint8_t codes[256];
  codes_of(group, codes);
  const float d = load_half(group.d);
  for (int i = 0; i < 256; ++i) out[i] = static_cast<float>(codes[i] - 1) * d;
}
void values_of(const GroupTQ1_0& group, float* out) { ternary_values(group, out); }
void values_of(const GroupTQ2_0& group, float* out) { ternary_values(group, out); }

void values_of(const GroupI2_S& group, float* out) {
  std::uint8_t codes[128];
  codes_of(group, codes);
  for (int i = 0; i < 128; ++i) out[i] = static_cast<float>(codes[i] - 1);
}

template <class Group, std::size_t group_size>
void dequantize_groups(const std::byte* in, float* out, std::size_t count) {
  TROUPE_ASSERT(count % group_size == 0);
  for (std::size_t i = 0; i < count; i += group_size, in += sizeof(Group)) values_of(load<Group>(in), out + i);
}

}  // namespace

void codes_of(const GroupQ8_0& group, std::uint8_t codes[32]) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>(group.codes[i] + 128);
}

void codes_of(const GroupQ4_0& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }
void codes_of(const GroupQ4_1& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }
void codes_of(const GroupIQ4_NL& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }
void codes_of(const GroupMXFP4& group, std::uint8_t codes[32]) { nibbles_of_32(group.nibbles, codes); }

void codes_of(const GroupQ5_0& group, std::uint8_t codes[32]) { fives_of_32(group.nibbles, group.high_bits, codes); }
void codes_of(const GroupQ5_1& group, std::uint8_t codes[32]) { fives_of_32(group.nibbles, group.high_bits, codes); }

void codes_of(const GroupIQ4_XS& group, std::uint8_t codes[256]) {
  for (int run = 0; run < 8; ++run) nibbles_of_32(group.nibbles + 16 * run, codes + 32 * run);
}

void codes_of(const GroupQ2_K& group, std::uint8_t codes[256]) { twos_of(group.codes, codes); }

void codes_of(const GroupQ3_K& group, std::uint8_t codes[256]) {
  twos_of(group.codes, codes);
  for (int run = 0; run < 8; ++run)
    for (int i = 0; i < 32; ++i)
      codes[32 * run + i] |= static_cast<std::uint8_t>(((group.high_bits[i] >> run) & 1) << 2);
}

void codes_of(const GroupQ4_K& group, std::uint8_t codes[256]) { nibbles_of(group.nibbles, codes); }

void codes_of(const GroupQ5_K& group, std::uint8_t codes[256]) {
  nibbles_of(group.nibbles, codes);
  for (int run = 0; run < 8; ++run)
    for (int i = 0; i < 32; ++i)
      codes[32 * run + i] |= static_cast<std::uint8_t>(((group.high_bits[i] >> run) & 1) << 4);
}

void codes_of(const GroupQ6_K& group, std::uint8_t codes[256]) {
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

void codes_of(const GroupTQ1_0& group, std::uint8_t codes[256]) {
  std::uint8_t* out = codes;
  for (const std::uint8_t power : kPowersOf3)
    for (int i = 0; i < 32; ++i) *out++ = ternary_digit(group.fives[i], power);
  for (const std::uint8_t power : kPowersOf3)
    for (int i = 32; i < 48; ++i) *out++ = ternary_digit(group.fives[i], power);
  for (int n = 0; n < 4; ++n)
    for (const std::uint8_t byte : group.fours) *out++ = ternary_digit(byte, kPowersOf3[n]);
}

void codes_of(const GroupTQ2_0& group, std::uint8_t codes[256]) { twos_of(group.codes, codes); }

void codes_of(const GroupI2_S& group, std::uint8_t codes[128]) {
  for (int run = 0; run < 4; ++run)
    for (int i = 0; i < 32; ++i) {
      const int code = (group.codes[i] >> (6 - 2 * run)) & 3;
      codes[32 * run + i] = static_cast<std::uint8_t>(code - (2 & -(code >> 1 & code)));  // 3 becomes 1
    }
}

ScaleMin scale_min_of(const std::uint8_t scales[12], int run) {
  if (run < 4) return {static_cast<std::uint8_t>(scales[run] & 63), static_cast<std::uint8_t>(scales[run + 4] & 63)};
  return {static_cast<std::uint8_t>((scales[run + 4] & 0x0f) | ((scales[run - 4] >> 6) << 4)),
          static_cast<std::uint8_t>((scales[run + 4] >> 4) | ((scales[run] >> 6) << 4))};
}

int scale_of(const GroupIQ4_XS& group, int run) {
  const int low = (group.scales_low[run / 2] >> (run % 2 * 4)) & 15;
  const int high = (group.scales_high[run / 4] >> (run % 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

int scale_of(const GroupQ3_K& group, int run) {
  const int low = (group.scales[run % 8] >> (run / 8 * 4)) & 15;
  const int high = (group.scales[8 + run % 4] >> (run / 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

float half_of_e8m0(std::uint8_t e) {
  return float_of_bits(e < 2 ? std::uint32_t{0x00200000} << e : static_cast<std::uint32_t>(e - 1) << 23);
}

std::span<const WeightTypeInfo> weight_types() { return kTypes; }

const WeightTypeInfo& info(WeightType type) {
  for (const WeightTypeInfo& entry : kTypes)
    if (entry.type == type) return entry;
  TROUPE_ASSERT(!"a WeightType outside the enumeration");
  return kTypes[0];
}

std::optional<WeightType> weight_type_of_gguf(std::uint32_t gguf_number) {
  for (const WeightTypeInfo& entry : kTypes)
    if (entry.gguf_number == gguf_number) return entry.type;
  return std::nullopt;
}

void dequantize(WeightType type, const std::byte* in, float* out, std::size_t count) {
  switch (type) {
    case WeightType::f32:
      if (count != 0) std::memcpy(out, in, count * sizeof(float));
      return;
    case WeightType::f16:
      for (std::size_t i = 0; i < count; ++i) out[i] = load_half(in + 2 * i);
      return;
    case WeightType::bf16:
      for (std::size_t i = 0; i < count; ++i) out[i] = float_of_bf16(load<std::uint16_t>(in + 2 * i));
      return;
    case WeightType::q8_0:
      return dequantize_groups<GroupQ8_0, 32>(in, out, count);
    case WeightType::q4_0:
      return dequantize_groups<GroupQ4_0, 32>(in, out, count);
    case WeightType::q4_1:
      return dequantize_groups<GroupQ4_1, 32>(in, out, count);
    case WeightType::iq4_nl:
      return dequantize_groups<GroupIQ4_NL, 32>(in, out, count);
    case WeightType::q5_0:
      return dequantize_groups<GroupQ5_0, 32>(in, out, count);
    case WeightType::q5_1:
      return dequantize_groups<GroupQ5_1, 32>(in, out, count);
    case WeightType::iq4_xs:
      return dequantize_groups<GroupIQ4_XS, 256>(in, out, count);
    case WeightType::mxfp4:
      return dequantize_groups<GroupMXFP4, 32>(in, out, count);
    case WeightType::q2_k:
      return dequantize_groups<GroupQ2_K, 256>(in, out, count);
    case WeightType::q3_k:
      return dequantize_groups<GroupQ3_K, 256>(in, out, count);
    case WeightType::q4_k:
      return dequantize_groups<GroupQ4_K, 256>(in, out, count);
    case WeightType::q5_k:
      return dequantize_groups<GroupQ5_K, 256>(in, out, count);
    case WeightType::q6_k:
      return dequantize_groups<GroupQ6_K, 256>(in, out, count);
    case WeightType::tq1_0:
      return dequantize_groups<GroupTQ1_0, 256>(in, out, count);
    case WeightType::tq2_0:
      return dequantize_groups<GroupTQ2_0, 256>(in, out, count);
    case WeightType::i2_s:
      return dequantize_groups<GroupI2_S, 128>(in, out, count);
  }
}

}  // namespace troupe::kernels
