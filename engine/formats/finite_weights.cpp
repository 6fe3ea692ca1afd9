#include "engine/formats/finite_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/formats/groups.h"

namespace troupe::engine {
namespace {

using kernels::WeightType;

// Infinity and NaN have all bits of the exponent set.
constexpr std::uint32_t kExponentF32 = 0x7f800000;
constexpr std::uint16_t kExponentBF16 = 0x7f80;
constexpr std::uint16_t kExponentF16 = 0x7c00;

// Checks adjacent numbers; written so that compilers vectorise it.
template <class Bits>
bool finite_numbers(std::span<const std::byte> bytes, Bits exponent) {
  Bits bad = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    bad |= static_cast<Bits>((bits & exponent) == exponent);
  }
  return bad == 0;
}

// Checks the float16 scales at these offsets of each group.
template <std::size_t kGroupBytes, std::size_t... kOffsets>
bool finite_scales(std::span<const std::byte> bytes) {
  std::uint16_t bad = 0;
  for (std::size_t group = 0; group < bytes.size(); group += kGroupBytes) {
    const auto look = [&](std::size_t offset) {
      std::uint16_t bits;
      std::memcpy(&bits, bytes.data() + group + offset, sizeof bits);
      bad |= static_cast<std::uint16_t>((bits & kExponentF16) == kExponentF16);
    };
    (look(kOffsets), ...);
  }
  return bad == 0;
}

// MXFP4's scales are powers of two; the largest ones give infinity only with the largest codes.
bool finite_mxfp4(std::span<const std::byte> bytes) {
  constexpr std::uint8_t kLargestWithAllCodes = 252;  // 2^(252 - 127) * 6 is finite
  constexpr std::size_t kWeights = 32;
  float weights[kWeights];
  for (std::size_t group = 0; group < bytes.size(); group += sizeof(kernels::GroupMXFP4)) {
    if (std::to_integer<std::uint8_t>(bytes[group + offsetof(kernels::GroupMXFP4, e)]) <= kLargestWithAllCodes)
      continue;
    kernels::dequantize(WeightType::mxfp4, bytes.data() + group, weights, kWeights);
    if (!std::all_of(std::begin(weights), std::end(weights), [](float weight) { return std::isfinite(weight); }))
      return false;
  }
  return true;
}

}  // namespace

bool all_finite(WeightType type, std::span<const std::byte> groups) {
  using namespace kernels;
  switch (type) {
    case WeightType::f32:
      return finite_numbers(groups, kExponentF32);
    case WeightType::f16:
      return finite_numbers(groups, kExponentF16);
    case WeightType::bf16:
      return finite_numbers(groups, kExponentBF16);
    case WeightType::q8_0:
      return finite_scales<sizeof(GroupQ8_0), offsetof(GroupQ8_0, d)>(groups);
    case WeightType::q4_0:
      return finite_scales<sizeof(GroupQ4_0), offsetof(GroupQ4_0, d)>(groups);
    case WeightType::q4_1:
      return finite_scales<sizeof(GroupQ4_1), offsetof(GroupQ4_1, d), offsetof(GroupQ4_1, m)>(groups);
    case WeightType::q5_0:
      return finite_scales<sizeof(GroupQ5_0), offsetof(GroupQ5_0, d)>(groups);
    case WeightType::q5_1:
      return finite_scales<sizeof(GroupQ5_1), offsetof(GroupQ5_1, d), offsetof(GroupQ5_1, m)>(groups);
    case WeightType::iq4_nl:
      return finite_scales<sizeof(GroupIQ4_NL), offsetof(GroupIQ4_NL, d)>(groups);
    case WeightType::iq4_xs:
      return finite_scales<sizeof(GroupIQ4_XS), offsetof(GroupIQ4_XS, d)>(groups);
    case WeightType::q2_k:
      return finite_scales<sizeof(GroupQ2_K), offsetof(GroupQ2_K, d), offsetof(GroupQ2_K, dmin)>(groups);
    case WeightType::q3_k:
      return finite_scales<sizeof(GroupQ3_K), offsetof(GroupQ3_K, d)>(groups);
    case WeightType::q4_k:
      return finite_scales<sizeof(GroupQ4_K), offsetof(GroupQ4_K, d), offsetof(GroupQ4_K, dmin)>(groups);
    case WeightType::q5_k:
      return finite_scales<sizeof(GroupQ5_K), offsetof(GroupQ5_K, d), offsetof(GroupQ5_K, dmin)>(groups);
    case WeightType::q6_k:
      return finite_scales<sizeof(GroupQ6_K), offsetof(GroupQ6_K, d)>(groups);
    case WeightType::tq1_0:
      return finite_scales<sizeof(GroupTQ1_0), offsetof(GroupTQ1_0, d)>(groups);
    case WeightType::tq2_0:
      return finite_scales<sizeof(GroupTQ2_0), offsetof(GroupTQ2_0, d)>(groups);
    case WeightType::mxfp4:
      return finite_mxfp4(groups);
    case WeightType::i2_s:
      return true;  // only codes; the tensor's scale is checked when it is read
  }
  return true;
}

}  // namespace troupe::engine
