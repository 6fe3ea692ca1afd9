// The operations of recurrent_lanes.h with lanes in plain C++. The including file first defines, in an anonymous
// namespace, Number (float or double), exp_of(Number), tanh_of(Number) and exp2_of(Number), which is 2^x for x <= 0.
#pragma once

#include <cmath>

namespace troupe::kernels {
namespace {

struct Lanes {
  Number x[16];
};
template <class Fn>
inline Lanes each(Fn&& fn) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.x[i] = fn(i);
  return out;
}
inline Lanes load(const float* x) {
  return each([&](int i) { return Number{x[i]}; });
}
inline void store(float* out, Lanes x) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<float>(x.x[i]);
}
inline Lanes set1(float x) {
  return each([&](int) { return Number{x}; });
}
inline Lanes add(Lanes a, Lanes b) {
  return each([&](int i) { return a.x[i] + b.x[i]; });
}
inline Lanes sub(Lanes a, Lanes b) {
  return each([&](int i) { return a.x[i] - b.x[i]; });
}
inline Lanes mul(Lanes a, Lanes b) {
  return each([&](int i) { return a.x[i] * b.x[i]; });
}
inline Lanes div(Lanes a, Lanes b) {
  return each([&](int i) { return a.x[i] / b.x[i]; });
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each([&](int i) { return a.x[i] * b.x[i] + c.x[i]; });
}
inline Lanes max(Lanes a, Lanes b) {  // a NaN in `a` stays
  return each([&](int i) { return b.x[i] > a.x[i] ? b.x[i] : a.x[i]; });
}
inline Lanes exp(Lanes x) {
  return each([&](int i) { return exp_of(x.x[i]); });
}
inline Lanes tanh(Lanes x) {
  return each([&](int i) { return tanh_of(x.x[i]); });
}
inline Lanes exp2_below_0(Lanes x) {
  return each([&](int i) { return exp2_of(x.x[i]); });
}
inline Lanes root(Lanes x) {
  return each([&](int i) { return std::sqrt(x.x[i]); });
}
// The sum in all lanes: adds i and i + 8, then + 4, ...
inline Lanes sum(Lanes x) {
  for (int width = 8; width != 0; width /= 2)
    for (int i = 0; i < width; ++i) x.x[i] += x.x[i + width];
  return each([&](int) { return x.x[0]; });
}

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent/recurrent_lanes.h"  // uses the functions above
