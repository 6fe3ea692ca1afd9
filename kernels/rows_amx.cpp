// Rounding of activations for the matrix unit: 16 rows side by side, see packed_layout.h.
#include <immintrin.h>

#include "kernels/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::amx {
namespace {

using namespace layout;

constexpr std::size_t kTileRows = 16;

inline __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

// Up to 16 floats from x[i] on; zeros beyond k.
inline __m512 load_some(const float* x, std::size_t i, std::size_t k) {
  return i < k ? _mm512_maskz_loadu_ps(first_lanes(k - i), x + i) : _mm512_setzero_ps();
}

// Round to nearest even. NaN stays NaN; denormals become zero, as in the product.
inline __m512i bf16_of(__m512 x) { return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x))); }

// Dword j goes to line j of a tile.
inline void put_column(__m512i dwords, std::byte* tile) {
  alignas(64) std::uint32_t column[16];
  _mm512_store_si512(column, dwords);
  for (std::size_t j = 0; j < 16; ++j) *reinterpret_cast<std::uint32_t*>(tile + j * kLine) = column[j];
}

inline __m512i pairs(__m512i low, __m512i high) { return _mm512_or_si512(low, _mm512_slli_epi32(high, 16)); }

inline std::byte* column_of(std::byte* prepared, std::size_t row, std::size_t tile_bytes) {
  return prepared + row / kTileRows * tile_bytes + row % kTileRows * 4;
}

}  // namespace

void prepare_bf16_tiles(const float* x, std::size_t k, std::size_t row, std::byte* prepared) {
  std::byte* out = column_of(prepared, row, bf16_tiles_bytes(k));
  for (std::size_t i = 0; i < tiles_k(k); i += 32, out += kTile)
    put_column(pairs(bf16_of(load_some(x, i, k)), bf16_of(load_some(x, i + 16, k))), out);
}

void prepare_bf16_split_tiles(const float* x, std::size_t k, std::size_t row, std::byte* prepared) {
  const std::size_t plane = bf16_tiles_bytes(k);
  std::byte* out = column_of(prepared, row, 2 * plane);
  for (std::size_t i = 0; i < tiles_k(k); i += 32, out += kTile) {
    const __m512 low = load_some(x, i, k), high = load_some(x, i + 16, k);
    const __m512i low_bits = bf16_of(low), high_bits = bf16_of(high);
    put_column(pairs(low_bits, high_bits), out);
    const __m512 low_rest = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(low_bits, 16)));
    const __m512 high_rest = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(high_bits, 16)));
    put_column(pairs(bf16_of(low_rest), bf16_of(high_rest)), out + plane);
  }
}

void prepare_i8_tiles(const float* x, std::size_t k, std::size_t row, std::byte* prepared) {
  std::byte* out = column_of(prepared, row, i8_tiles_bytes(k));
  __m512 max = _mm512_setzero_ps();
  for (std::size_t i = 0; i < k; i += 16)  // NaN in the first operand: keeps the second
    max = _mm512_max_ps(_mm512_abs_ps(load_some(x, i, k)), max);
  const float largest = _mm512_reduce_max_ps(max);
  const bool usual = largest > kSmallestMax;
  const __m512 inverse = _mm512_set1_ps(usual ? 127.0f / largest : 0.0f);
  const __m512 least = _mm512_set1_ps(-127.0f), most = _mm512_set1_ps(127.0f);
  __m512i sum = _mm512_setzero_si512();
  for (std::size_t i = 0; i < tiles_k(k); i += 64, out += kTile) {
    alignas(64) std::int8_t codes[64];
    for (std::size_t j = 0; j < 64; j += 16) {
      const __m512 scaled = _mm512_mul_ps(load_some(x, i + j, k), inverse);
      const __m512i wide = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(scaled, least), most));
      sum = _mm512_add_epi32(sum, wide);
      _mm_store_si128(reinterpret_cast<__m128i*>(codes + j), _mm512_cvtepi32_epi8(wide));
    }
    put_column(_mm512_load_si512(codes), out);
  }
  *reinterpret_cast<float*>(out) = usual ? largest / 127.0f : 0.0f;
  *reinterpret_cast<std::int32_t*>(out + kLine) = _mm512_reduce_add_epi32(sum);
}

}  // namespace troupe::kernels::amx
