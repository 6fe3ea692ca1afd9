// exp(x) and tanh(x) of 8 floats: exp_scalar.h's algorithms with fused multiply-adds; the largest and the sum of 8
// floats. Static: included only by files compiled for AVX2.
#pragma once

#include <immintrin.h>

#include "kernels/rows/exp_scalar.h"

namespace troupe::kernels {

static inline float max_of_lanes(__m256 x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
// Adds lanes i and i + 4, then + 2, then + 1.
static inline float sum_of_lanes(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline __m256 exp_avx2(__m256 x) {
  const __m256 low = _mm256_cmp_ps(x, _mm256_set1_ps(kExpLow), _CMP_LT_OQ);
  x = _mm256_min_ps(_mm256_set1_ps(kExpHigh), x);  // a NaN in the second operand stays
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), x));
  __m256 p = _mm256_set1_ps(kExp7);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp2));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(low, _mm256_mul_ps(p, _mm256_castsi256_ps(exponent)));
}

static inline __m256 tanh_avx2(__m256 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
  const __m256 magnitude = _mm256_andnot_ps(sign, x), z = _mm256_mul_ps(x, x);
  __m256 p = _mm256_set1_ps(kTanh11);
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kTanh9));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kTanh7));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kTanh5));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kTanh3));
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(p, z), x, x);
  const __m256 e = exp_avx2(_mm256_add_ps(magnitude, magnitude));
  const __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one)));
  const __m256 is_small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(kTanhSmall), _CMP_LT_OQ);
  return _mm256_blendv_ps(_mm256_or_ps(large, _mm256_and_ps(sign, x)), small, is_small);
}

}  // namespace troupe::kernels
