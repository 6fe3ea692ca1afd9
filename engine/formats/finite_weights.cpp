#include "engine/formats/finite_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/formats/weight_formats.h"

namespace troupe::engine {
namespace {

using kernels::WeightType;

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

// Checks the float16 scales of each group: d, m and dmin, of which it has some.
template <class Group>
bool finite_scales(std::span<const std::byte> bytes) {
  std::uint16_t bad = 0;
  const auto look = [&](const std::uint8_t(&half)[2]) {
    std::uint16_t bits;
    std::memcpy(&bits, half, sizeof bits);
    bad |= static_cast<std::uint16_t>((bits & kernels::GroupF16::kExponent) == kernels::GroupF16::kExponent);
  };
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Group)) {
    const auto& group = *reinterpret_cast<const Group*>(bytes.data() + at);  // bytes only
    if constexpr (requires { group.d; }) look(group.d);
    if constexpr (requires { group.m; }) look(group.m);
    if constexpr (requires { group.dmin; }) look(group.dmin);
  }
  return bad == 0;
}

// MXFP4's scales are powers of two; the largest ones give infinity only with the largest codes.
template <class Format>
bool finite_powers(WeightType type, std::span<const std::byte> bytes) {
  using Group = typename Format::Group;
  constexpr std::uint8_t kLargestWithAllCodes = 252;  // 2^(252 - 127) * 6 is finite
  float weights[Format::kWeights];
  for (std::size_t group = 0; group < bytes.size(); group += sizeof(Group)) {
    if (std::to_integer<std::uint8_t>(bytes[group + offsetof(Group, e)]) <= kLargestWithAllCodes) continue;
    kernels::dequantize(type, bytes.data() + group, weights, Format::kWeights);
    if (!std::all_of(std::begin(weights), std::end(weights), [](float weight) { return std::isfinite(weight); }))
      return false;
  }
  return true;
}

}  // namespace

bool all_finite(WeightType type, std::span<const std::byte> groups) {
  return kernels::visit_type(type, [&](auto format) {
    using Group = typename decltype(format)::Group;
    if constexpr (requires { Group::kExponent; })
      return finite_numbers(groups, Group::kExponent);
    else if constexpr (requires { Group::e; })
      return finite_powers<decltype(format)>(type, groups);
    else
      return finite_scales<Group>(groups);  // I2_S has none; the tensor's scale is checked when it is read
  });
}

}  // namespace troupe::engine
