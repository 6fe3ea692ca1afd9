// Peak loops for AVX2 and FMA.
#include <immintrin.h>

#include "kernels/peaks/peaks_variants.h"

namespace troupe::kernels::peaks {
namespace {

constexpr int kStepsPerRound = 4;  // so that counting rounds costs next to nothing

}  // namespace

// Twelve chains: two ports with a latency of four or five cycles need eight to ten. Each converges to c / (1 - b).
std::uint64_t f32_avx2(std::uint64_t rounds) {
  const __m256 b = _mm256_set1_ps(0.75f), c = _mm256_set1_ps(0.5f);
  __m256 x[12];
  for (int i = 0; i < 12; ++i) x[i] = _mm256_set1_ps(1.0f + 0.125f * static_cast<float>(i));
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (int step = 0; step < kStepsPerRound; ++step)
      for (int i = 0; i < 12; ++i) x[i] = _mm256_fmadd_ps(x[i], b, c);
  for (int i = 1; i < 12; ++i) x[0] = _mm256_add_ps(x[0], x[i]);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(_mm256_castps_si256(x[0]))));
}

// Only the additions form chains; the byte products are computed again each time.
std::uint64_t int8_avx2(std::uint64_t rounds) {
  const __m256i ones = _mm256_set1_epi16(1), weights = _mm256_set1_epi8(3);
  __m256i bytes = _mm256_set1_epi8(5);
  __m256i x[8];
  for (int i = 0; i < 8; ++i) x[i] = _mm256_set1_epi32(i);
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (int step = 0; step < kStepsPerRound; ++step)
      for (int i = 0; i < 8; ++i) {
        __asm__ volatile("" : "+x"(bytes));  // prevents hoisting of the products
        x[i] = _mm256_add_epi32(x[i], _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, weights), ones));
      }
  for (int i = 1; i < 8; ++i) x[0] = _mm256_add_epi32(x[0], x[i]);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(x[0])));
}

std::uint64_t read_avx2(const std::byte* data, std::size_t bytes) {
  __m256i x[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (std::size_t at = 0; at < bytes; at += 256)
    for (std::size_t i = 0; i < 8; ++i)
      x[i % 4] = _mm256_or_si256(x[i % 4], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at + 32 * i)));
  const __m256i all = _mm256_or_si256(_mm256_or_si256(x[0], x[1]), _mm256_or_si256(x[2], x[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) | _mm256_extract_epi64(all, 1) |
                                    _mm256_extract_epi64(all, 2) | _mm256_extract_epi64(all, 3));
}

}  // namespace troupe::kernels::peaks
