// The operations of recurrent families with AVX2: 16 lanes are two vectors.
#include <immintrin.h>

#include "kernels/exp_avx2.h"

namespace troupe::kernels {
namespace {

struct Lanes {
  __m256 low, high;
};
inline Lanes load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
inline void store(float* out, Lanes x) {
  _mm256_storeu_ps(out, x.low);
  _mm256_storeu_ps(out + 8, x.high);
}
inline Lanes set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes add(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Lanes sub(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Lanes mul(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Lanes div(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Lanes max(Lanes a, Lanes b) {  // a NaN in `a` stays
  return {_mm256_max_ps(b.low, a.low), _mm256_max_ps(b.high, a.high)};
}
inline Lanes exp(Lanes x) { return {exp_avx2(x.low), exp_avx2(x.high)}; }
inline Lanes root(Lanes x) { return {_mm256_sqrt_ps(x.low), _mm256_sqrt_ps(x.high)}; }
// In all lanes: i and i + 8, then + 4, ...
inline Lanes sum(Lanes x) {
  __m256 y = _mm256_add_ps(x.low, x.high);
  y = _mm256_add_ps(y, _mm256_permute2f128_ps(y, y, 1));
  y = _mm256_add_ps(y, _mm256_permute_ps(y, 0x4e));
  y = _mm256_add_ps(y, _mm256_permute_ps(y, 0xb1));
  return {y, y};
}

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent_lanes.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
const RecurrentKernels recurrent = kRecurrentKernels;
}
