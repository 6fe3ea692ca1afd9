// The operations of recurrent families with AVX-512.
#include <immintrin.h>

#include "kernels/rows/exp_avx512.h"

namespace troupe::kernels {
namespace {

using Lanes = __m512;
inline Lanes load(const float* x) { return _mm512_loadu_ps(x); }
inline void store(float* out, Lanes x) { _mm512_storeu_ps(out, x); }
inline Lanes set1(float x) { return _mm512_set1_ps(x); }
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(b, a); }  // a NaN in `a` stays
inline Lanes exp(Lanes x) { return exp_avx512(x); }
inline Lanes tanh(Lanes x) { return tanh_avx512(x); }
// 2^x = 2^n 2^r, |r| <= 1/2: the Taylor series of 2^r to degree 7, within 1e-8.
inline Lanes exp2_below_0(Lanes x) {
  const Lanes n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Lanes r = _mm512_sub_ps(x, n);
  Lanes p = _mm512_set1_ps(kTwoPower7);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kTwoPower6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kTwoPower5));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kTwoPower4));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kTwoPower3));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kTwoPower2));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kTwoPower1));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), low, _mm512_setzero_ps());
}
inline Lanes root(Lanes x) { return _mm512_sqrt_ps(x); }
// The sum in all lanes: adds i and i + 8, then + 4, ...
inline Lanes sum(Lanes x) {
  x = _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0x4e));
  x = _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0xb1));
  x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4e));
  return _mm512_add_ps(x, _mm512_permute_ps(x, 0xb1));
}

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent/recurrent_lanes.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512 {
TROUPE_RECURRENT_KERNELS
}  // namespace troupe::kernels::avx512
