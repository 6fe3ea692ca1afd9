// The operations of recurrent families in plain C++.
#include "kernels/rows/exp_scalar.h"

namespace troupe::kernels {
namespace {

using Number = float;
inline Number exp_of(Number x) { return exp_scalar(x); }
inline Number tanh_of(Number x) { return tanh_scalar(x); }
// 2^x = 2^n 2^r, |r| <= 1/2: the Taylor series of 2^r to degree 7, within 1e-8.
inline Number exp2_of(Number x) {
  if (x < -126.0f) return 0.0f;
  if (x != x) return x;
  const float n = (x + kRoundMagic) - kRoundMagic;
  const float r = x - n;
  float p = kTwoPower7;
  p = p * r + kTwoPower6;
  p = p * r + kTwoPower5;
  p = p * r + kTwoPower4;
  p = p * r + kTwoPower3;
  p = p * r + kTwoPower2;
  p = p * r + kTwoPower1;
  p = p * r + 1.0f;
  return p * float_of_bits(static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23);
}

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent/recurrent_plain.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
TROUPE_RECURRENT_KERNELS
}  // namespace troupe::kernels::scalar
