// The operations of recurrent families with AVX2: 16 lanes are two vectors.
#include <immintrin.h>

#include "kernels/rows/exp_avx2.h"

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
inline Lanes tanh(Lanes x) { return {tanh_avx2(x.low), tanh_avx2(x.high)}; }
// 2^x = 2^n 2^r, |r| <= 1/2: the Taylor series of 2^r to degree 7, within 1e-8.
inline __m256 exp2_below_0(__m256 x) {
  const __m256 low = _mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_LT_OQ);
  const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 r = _mm256_sub_ps(x, n);
  __m256 p = _mm256_set1_ps(kTwoPower7);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kTwoPower6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kTwoPower5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kTwoPower4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kTwoPower3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kTwoPower2));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kTwoPower1));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(low, _mm256_mul_ps(p, _mm256_castsi256_ps(exponent)));
}
inline Lanes exp2_below_0(Lanes x) { return {exp2_below_0(x.low), exp2_below_0(x.high)}; }
inline Lanes root(Lanes x) { return {_mm256_sqrt_ps(x.low), _mm256_sqrt_ps(x.high)}; }
// The sum in all lanes: adds i and i + 8, then + 4, ...
inline Lanes sum(Lanes x) {
  __m256 y = _mm256_add_ps(x.low, x.high);
  y = _mm256_add_ps(y, _mm256_permute2f128_ps(y, y, 1));
  y = _mm256_add_ps(y, _mm256_permute_ps(y, 0x4e));
  y = _mm256_add_ps(y, _mm256_permute_ps(y, 0xb1));
  return {y, y};
}

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent/recurrent_lanes.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
TROUPE_RECURRENT_KERNELS
}  // namespace troupe::kernels::avx2
