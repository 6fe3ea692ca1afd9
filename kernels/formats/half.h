// float16 and bfloat16 as bit patterns, converted with integers only: the results do not depend on the
// rounding or flush-to-zero mode of the calling thread. Everything is static: safe to include in any file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace troupe::kernels {

static inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Exact.
static inline float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000u | (mantissa << 13));  // infinity, NaN
  if (exponent != 0) return float_of_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return float_of_bits(sign);
  std::uint32_t shifted = 113;  // a subnormal half is a normal float: move its leading bit to bit 10
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    --shifted;
  }
  return float_of_bits(sign | (shifted << 23) | ((mantissa & 0x3ffu) << 13));
}

// Rounds to nearest even; too large becomes infinity, NaN stays NaN: as the F16C instructions do.
static inline std::uint16_t half_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and more
  if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);             // below half of 2^-24
  std::uint32_t result, rest, half_way;
  if (magnitude >= 0x38800000u) {  // normal half
    result = (magnitude - 0x38000000u) >> 13;
    rest = magnitude & 0x1fffu;
    half_way = 0x1000u;
  } else {  // subnormal half: units of 2^-24
    const std::uint32_t shift = 126 - (magnitude >> 23);
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    result = mantissa >> shift;
    rest = mantissa & ((1u << shift) - 1);
    half_way = 1u << (shift - 1);
  }
  if (rest > half_way || (rest == half_way && (result & 1))) ++result;  // may carry up to infinity: correct
  return static_cast<std::uint16_t>(sign | result);
}

// Exact.
static inline float float_of_bf16(std::uint16_t bf16) { return float_of_bits(static_cast<std::uint32_t>(bf16) << 16); }

// Reads or writes a T at any alignment.
template <class T>
static inline T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
static inline void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

static inline float load_half(const void* from) { return float_of_half(load<std::uint16_t>(from)); }

}  // namespace troupe::kernels
