// Transposes a 16 x 16 matrix of dwords in registers. Static: included only by files compiled for AVX-512.
#pragma once

#include <immintrin.h>

namespace troupe::kernels {

static inline void transpose_avx512(__m512i (&x)[16]) {
  __m512i y[16];
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i p = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88), q = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    const __m512i r = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88),
                  s = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    y[i] = _mm512_shuffle_i32x4(p, r, 0x88);
    y[i + 8] = _mm512_shuffle_i32x4(p, r, 0xdd);
    y[i + 4] = _mm512_shuffle_i32x4(q, s, 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(q, s, 0xdd);
  }
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}

}  // namespace troupe::kernels
