// exp(x) of 16 floats: exp_scalar.h's algorithm with fused multiply-adds. Static: included only by files
// compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include "kernels/exp_scalar.h"

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

}  // namespace troupe::kernels
