// exp(x) and tanh(x) of 16 floats: exp_scalar.h's algorithms with fused multiply-adds. Static: included only by files
// compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include "kernels/rows/exp_scalar.h"

namespace troupe::kernels {

static inline __m512 exp_avx512(__m512 x) {
  const __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpLow), _CMP_LT_OQ);
  x = _mm512_min_ps(_mm512_set1_ps(kExpHigh), x);  // a NaN in the second operand stays
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), x));
  __m512 p = _mm512_set1_ps(kExp7);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp5));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp4));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp3));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp2));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), low, _mm512_setzero_ps());
}

static inline __m512 tanh_avx512(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f), magnitude = _mm512_abs_ps(x), z = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(kTanh11);
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kTanh9));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kTanh7));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kTanh5));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kTanh3));
  const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
  const __m512 e = exp_avx512(_mm512_add_ps(magnitude, magnitude));
  const __m512 large = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
  const __m512 with_sign = _mm512_or_ps(large, _mm512_and_ps(_mm512_set1_ps(-0.0f), x));
  return _mm512_mask_mov_ps(with_sign, _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(kTanhSmall), _CMP_LT_OQ), small);
}

}  // namespace troupe::kernels
