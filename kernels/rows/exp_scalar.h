// exp(x) and tanh(x) in float32 without libm, shared by the scalar variant's functions.
//
// Range reduction x = n ln 2 + r with a split ln 2, |r| <= 0.3466, then a polynomial of degree 7 with the coefficients
// of Cephes (S. Moshier, expf). Within 2 ulp. Below -87.33 the result is 0 (never a denormal); above 88.37 it is
// exp(88.37); NaN stays NaN.
#pragma once

#include "kernels/formats/half.h"

namespace troupe::kernels {

inline constexpr float kExpLow = -87.33f;
inline constexpr float kExpHigh = 88.37f;
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to nearest even
inline constexpr float kExp7 = 1.9875691500e-4f, kExp6 = 1.3981999507e-3f, kExp5 = 8.3334519073e-3f,
                       kExp4 = 4.1665795894e-2f, kExp3 = 1.6666665459e-1f, kExp2 = 5.0000001201e-1f;

// ln(2)^k / k!
inline constexpr float kTwoPower7 = 1.525273380e-05f, kTwoPower6 = 1.540353039e-04f, kTwoPower5 = 1.333355815e-03f,
                       kTwoPower4 = 9.618129108e-03f, kTwoPower3 = 5.550410866e-02f, kTwoPower2 = 2.402265070e-01f,
                       kTwoPower1 = 6.931471806e-01f;

static inline float exp_scalar(float x) {
  if (x != x) return x;
  if (x < kExpLow) return 0.0f;
  if (x > kExpHigh) x = kExpHigh;
  const float n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = kExp7;
  p = p * r + kExp6;
  p = p * r + kExp5;
  p = p * r + kExp4;
  p = p * r + kExp3;
  p = p * r + kExp2;
  p = p * (r * r) + r + 1.0f;
  return p * float_of_bits(static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23);
}

// tanh(x) within 4 ulp: Cephes' polynomial (S. Moshier, tanhf) for small |x|, where 1 - 2 / (exp(2x) + 1) has
// cancellation.
inline constexpr float kTanhSmall = 0.625f;
inline constexpr float kTanh11 = -5.70498872745e-3f, kTanh9 = 2.06390887954e-2f, kTanh7 = -5.37397155531e-2f,
                       kTanh5 = 1.33314422036e-1f, kTanh3 = -3.33332819422e-1f;

static inline float tanh_scalar(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  if (magnitude < kTanhSmall) {
    const float z = x * x;
    float p = kTanh11;
    p = p * z + kTanh9;
    p = p * z + kTanh7;
    p = p * z + kTanh5;
    p = p * z + kTanh3;
    return p * z * x + x;
  }
  const float large = 1.0f - 2.0f / (exp_scalar(magnitude + magnitude) + 1.0f);
  return x < 0.0f ? -large : large;
}

// gelu in the tanh form is x / (1 + exp(x (kGelu1 + kGelu3 x^2))).
inline constexpr float kGelu1 = -1.5957691216f, kGelu3 = -0.0713548162726f;

}  // namespace troupe::kernels
