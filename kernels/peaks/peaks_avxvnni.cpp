// Peak loop for AVX-VNNI: the byte products of AVX-512-VNNI in 32-byte registers (Alder Lake, Sierra Forest, Zen 5).
#include <immintrin.h>

#include "kernels/peaks/peaks_variants.h"

namespace troupe::kernels::peaks {

std::uint64_t int8_avxvnni(std::uint64_t rounds) {
  const __m256i bytes = _mm256_set1_epi8(5), weights = _mm256_set1_epi8(3);
  __m256i x[12];
  for (int i = 0; i < 12; ++i) x[i] = _mm256_set1_epi32(i);
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (int step = 0; step < 4; ++step)
      for (int i = 0; i < 12; ++i) {
        x[i] = _mm256_dpbusd_avx_epi32(x[i], bytes, weights);
        __asm__ volatile("" : "+x"(x[i]));  // prevents merging several into one
      }
  for (int i = 1; i < 12; ++i) x[0] = _mm256_add_epi32(x[0], x[i]);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(x[0])));
}

}  // namespace troupe::kernels::peaks
