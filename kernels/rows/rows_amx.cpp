// Rounding of activations for AMX: 16 rows side by side, see packed_layout.h.
#include <immintrin.h>

#include "kernels/cpu/transpose_avx512.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::amx {
namespace {

using namespace layout;

inline __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

// Up to 16 floats from x[i] on; zeros beyond k.
inline __m512 load_some(const float* x, std::size_t i, std::size_t k) {
  return i < k ? _mm512_maskz_loadu_ps(first_lanes(k - i), x + i) : _mm512_setzero_ps();
}

// Round to nearest even. NaN stays NaN; denormals become zero, as in the product.
inline __m512i bf16_of(__m512 x) { return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x))); }

// Up to 16 rows of one tile, from column `first` on.
struct Columns {
  std::size_t first, count;

  // Dword j of dwords_of(r) goes to line j of a tile, to the column of row r < count. The other columns stay.
  template <class DwordsOf>
  void put(std::byte* tile, DwordsOf dwords_of) const {
    __m512i x[kRowsPerTile];
    if (count == 1) {
      alignas(64) std::uint32_t column[16];
      _mm512_store_si512(column, dwords_of(0));
      for (std::size_t j = 0; j < 16; ++j) *reinterpret_cast<std::uint32_t*>(tile + j * kLine + 4 * first) = column[j];
      return;
    }
    for (std::size_t c = 0; c < kRowsPerTile; ++c)
      x[c] = c >= first && c < first + count ? dwords_of(c - first) : _mm512_setzero_si512();
    transpose_avx512(x);
    const auto mask = static_cast<__mmask16>(first_lanes(count) << first);
    for (std::size_t j = 0; j < 16; ++j) _mm512_mask_store_epi32(tile + j * kLine, mask, x[j]);
  }
};

inline __m512i pairs(__m512i low, __m512i high) { return _mm512_or_si512(low, _mm512_slli_epi32(high, 16)); }

// Calls fn(x of the first row, tile group, columns) for the rows of each group of 16.
template <class Fn>
void for_tiles(const float* x, std::size_t stride, std::size_t first_row, std::size_t num_rows, std::byte* prepared,
               std::size_t tile_bytes, Fn fn) {
  for (std::size_t row = first_row; row < first_row + num_rows;) {
    const std::size_t column = row % kRowsPerTile, left = first_row + num_rows - row;
    const Columns columns{column, left < kRowsPerTile - column ? left : kRowsPerTile - column};
    fn(x + (row - first_row) * stride, prepared + row / kRowsPerTile * tile_bytes, columns);
    row += columns.count;
  }
}

}  // namespace

void prepare_bf16_tiles(const float* x, std::size_t stride, std::size_t k, std::size_t first_row, std::size_t num_rows,
                        std::byte* prepared) {
  for_tiles(x, stride, first_row, num_rows, prepared, bf16_tiles_bytes(k),
            [&](const float* rows, std::byte* out, Columns columns) {
              for (std::size_t i = 0; i < tiles_k(k); i += 32, out += kTile)
                columns.put(out, [&](std::size_t r) {
                  const float* row = rows + r * stride;
                  return pairs(bf16_of(load_some(row, i, k)), bf16_of(load_some(row, i + 16, k)));
                });
            });
}

void prepare_bf16_split_tiles(const float* x, std::size_t stride, std::size_t k, std::size_t first_row,
                              std::size_t num_rows, std::byte* prepared) {
  const std::size_t plane = bf16_tiles_bytes(k);
  for_tiles(x, stride, first_row, num_rows, prepared, 2 * plane,
            [&](const float* rows, std::byte* out, Columns columns) {
              for (std::size_t i = 0; i < tiles_k(k); i += 32, out += kTile) {
                const auto high_part = [&](std::size_t r, std::size_t at) {
                  return bf16_of(load_some(rows + r * stride, at, k));
                };
                const auto low_part = [&](std::size_t r, std::size_t at) {
                  const __m512 value = load_some(rows + r * stride, at, k);
                  return bf16_of(_mm512_sub_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(bf16_of(value), 16))));
                };
                columns.put(out, [&](std::size_t r) { return pairs(high_part(r, i), high_part(r, i + 16)); });
                columns.put(out + plane, [&](std::size_t r) { return pairs(low_part(r, i), low_part(r, i + 16)); });
              }
            });
}

void prepare_i8_tiles(const float* x, std::size_t stride, std::size_t k, std::size_t first_row, std::size_t num_rows,
                      std::byte* prepared) {
  const std::size_t tile_bytes = i8_tiles_bytes(k);
  for_tiles(
      x, stride, first_row, num_rows, prepared, tile_bytes, [&](const float* rows, std::byte* out, Columns columns) {
        const __m512 least = _mm512_set1_ps(-127.0f), most = _mm512_set1_ps(127.0f);
        float* scales = reinterpret_cast<float*>(out + tile_bytes - 2 * kLine) + columns.first;
        std::int32_t* sums = reinterpret_cast<std::int32_t*>(out + tile_bytes - kLine) + columns.first;
        float inverse[kRowsPerTile];
        __m512i sum[kRowsPerTile];
        for (std::size_t r = 0; r < columns.count; ++r) {
          __m512 max = _mm512_setzero_ps();
          for (std::size_t i = 0; i < k; i += 16)  // NaN in the first operand: keeps the second
            max = _mm512_max_ps(_mm512_abs_ps(load_some(rows + r * stride, i, k)), max);
          const float largest = _mm512_reduce_max_ps(max);
          const bool usual = largest > kSmallestMax;
          inverse[r] = usual ? 127.0f / largest : 0.0f;
          scales[r] = usual ? largest / 127.0f : 0.0f;
          sum[r] = _mm512_setzero_si512();
        }
        for (std::size_t i = 0; i < tiles_k(k); i += 64, out += kTile)
          columns.put(out, [&](std::size_t r) {
            alignas(64) std::int8_t codes[64];
            for (std::size_t j = 0; j < 64; j += 16) {
              const __m512 scaled = _mm512_mul_ps(load_some(rows + r * stride, i + j, k), _mm512_set1_ps(inverse[r]));
              const __m512i wide = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(scaled, least), most));
              sum[r] = _mm512_add_epi32(sum[r], wide);
              _mm_store_si128(reinterpret_cast<__m128i*>(codes + j), _mm512_cvtepi32_epi8(wide));
            }
            return _mm512_load_si512(codes);
          });
        for (std::size_t r = 0; r < columns.count; ++r) sums[r] = _mm512_reduce_add_epi32(sum[r]);
      });
}

void prepare_i8_group256_tiles(const float* x, std::size_t stride, std::size_t k, std::size_t first_row,
                               std::size_t num_rows, std::byte* prepared) {
  for (std::size_t row = first_row; row < first_row + num_rows; ++row, x += stride) {
    std::byte* group = prepared + row / kRowsPerTile * i8_group256_tiles_bytes(k);
    const std::size_t in_tile = row % kRowsPerTile;
    for (std::size_t i = 0; i < k; i += 256, group += kI8GroupBytes) {
      __m512 values[16];
      __m512 max = _mm512_setzero_ps();
      for (std::size_t j = 0; j < 16; ++j) {
        values[j] = _mm512_loadu_ps(x + i + 16 * j);
        max = _mm512_max_ps(_mm512_abs_ps(values[j]), max);  // NaN in the first operand: keeps the second
      }
      const float largest = _mm512_reduce_max_ps(max);
      const bool usual = largest > kSmallestMax;
      const __m512 inverse = _mm512_set1_ps(usual ? 127.0f / largest : 0.0f);
      reinterpret_cast<float*>(group + kI8GroupScales)[in_tile] = usual ? largest / 127.0f : 0.0f;
      auto* sums = reinterpret_cast<std::int16_t*>(group + kI8GroupSums) + 8 * in_tile;
      for (std::size_t run = 0; run < 8; ++run) {
        __m512i codes[2];
        for (std::size_t j = 0; j < 2; ++j) {
          const __m512 scaled = _mm512_mul_ps(values[2 * run + j], inverse);
          codes[j] =
              _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(scaled, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f)));
          std::byte* to = group + run / 2 * kTile + in_tile * kLine + (run % 2 * 2 + j) * 16;
          _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes[j]));
        }
        sums[run] = static_cast<std::int16_t>(_mm512_reduce_add_epi32(_mm512_add_epi32(codes[0], codes[1])));
      }
    }
  }
}

}  // namespace troupe::kernels::amx
