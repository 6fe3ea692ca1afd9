// Peak loops for AVX-512 without VNNI.
#include <immintrin.h>

#include "kernels/peaks/peaks_variants.h"

namespace troupe::kernels::peaks {

// Twelve chains, as in peaks_avx2.cpp.
std::uint64_t f32_avx512(std::uint64_t rounds) {
  const __m512 b = _mm512_set1_ps(0.75f), c = _mm512_set1_ps(0.5f);
  __m512 x[12];
  for (int i = 0; i < 12; ++i) x[i] = _mm512_set1_ps(1.0f + 0.125f * static_cast<float>(i));
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (int step = 0; step < 4; ++step)
      for (int i = 0; i < 12; ++i) x[i] = _mm512_fmadd_ps(x[i], b, c);
  for (int i = 1; i < 12; ++i) x[0] = _mm512_add_ps(x[0], x[i]);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_castps_si512(x[0]))));
}

// Only the additions form chains; the byte products are computed again each time.
std::uint64_t int8_avx512(std::uint64_t rounds) {
  const __m512i ones = _mm512_set1_epi16(1), weights = _mm512_set1_epi8(3);
  __m512i bytes = _mm512_set1_epi8(5);
  __m512i x[8];
  for (int i = 0; i < 8; ++i) x[i] = _mm512_set1_epi32(i);
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (int step = 0; step < 4; ++step)
      for (int i = 0; i < 8; ++i) {
        __asm__ volatile("" : "+v"(bytes));  // prevents hoisting of the products
        x[i] = _mm512_add_epi32(x[i], _mm512_madd_epi16(_mm512_maddubs_epi16(bytes, weights), ones));
      }
  for (int i = 1; i < 8; ++i) x[0] = _mm512_add_epi32(x[0], x[i]);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(x[0])));
}

std::uint64_t read_avx512(const std::byte* data, std::size_t bytes) {
  __m512i x[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (std::size_t at = 0; at < bytes; at += 256)
    for (std::size_t i = 0; i < 4; ++i) x[i] = _mm512_or_si512(x[i], _mm512_load_si512(data + at + 64 * i));
  const __m512i all = _mm512_or_si512(_mm512_or_si512(x[0], x[1]), _mm512_or_si512(x[2], x[3]));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, all);
  std::uint64_t bits = 0;
  for (const std::uint64_t word : words) bits |= word;
  return bits;
}

}  // namespace troupe::kernels::peaks
