// Operations on rows with AVX-512: rounding of activations, norms, elementwise work, sampling.
#include <immintrin.h>

#include "kernels/formats/packed_layout.h"
#include "kernels/rows/exp_avx512.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512 {
namespace {

inline __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

// Adds lanes i and i + 8, then + 4, ...: the order of the scalar variant.
inline float sum_of_lanes(__m512 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float max_magnitude(const float* x, std::size_t count) {
  __m512 max = _mm512_setzero_ps();
  for (std::size_t i = 0; i < count; i += 16)
    max = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)), max);  // NaN in the first operand: keeps the second
  return _mm512_reduce_max_ps(max);
}

inline float inverse_of_max(float max) { return max > layout::kSmallestMax ? 127.0f / max : 0.0f; }
inline float scale_of_max(float max) { return max > layout::kSmallestMax ? max / 127.0f : 0.0f; }

// Writes 16 codes; returns them widened.
inline __m512i round_16(const float* x, __m512 inverse, std::byte* codes) {
  const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
  const __m512 limited = _mm512_min_ps(_mm512_max_ps(scaled, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f));
  const __m512i wide = _mm512_cvtps_epi32(limited);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(wide));
  return wide;
}

template <class T>
inline T* array_at(std::byte* row, std::size_t offset) {
  return reinterpret_cast<T*>(row + offset);
}

}  // namespace

namespace {

// The largest |x| of each of four groups of 32, in all four elements of lane i.
inline __m512 max_of_4_groups(const float* x) {
  __m512 m[4];
  for (int g = 0; g < 4; ++g)  // NaN in the first operand: keeps the second
    m[g] = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + 32 * g)),
                         _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + 32 * g + 16)), _mm512_setzero_ps()));
  const __m512 m01 = _mm512_max_ps(_mm512_shuffle_f32x4(m[0], m[1], 0x44), _mm512_shuffle_f32x4(m[0], m[1], 0xee));
  const __m512 m23 = _mm512_max_ps(_mm512_shuffle_f32x4(m[2], m[3], 0x44), _mm512_shuffle_f32x4(m[2], m[3], 0xee));
  __m512 max = _mm512_max_ps(_mm512_shuffle_f32x4(m01, m23, 0x88), _mm512_shuffle_f32x4(m01, m23, 0xdd));
  max = _mm512_max_ps(max, _mm512_permute_ps(max, 0x4e));
  return _mm512_max_ps(max, _mm512_permute_ps(max, 0xb1));
}

// The sums of four times 16 codes, each in all elements of its lane.
inline __m512i sums_of_4_runs(const std::byte* codes) {
  const __m512i twos = _mm512_maddubs_epi16(_mm512_set1_epi8(1), _mm512_loadu_si512(codes));
  const __m512i quads = _mm512_madd_epi16(twos, _mm512_set1_epi16(1));
  const __m512i pairs = _mm512_add_epi32(quads, _mm512_shuffle_epi32(quads, static_cast<_MM_PERM_ENUM>(0x4e)));
  return _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, static_cast<_MM_PERM_ENUM>(0xb1)));
}

inline void prepare_4_groups(const float* x, std::size_t g, const layout::Group32Row& row, std::byte* out) {
  const __m512 max = max_of_4_groups(x);
  const __mmask16 usual = _mm512_cmp_ps_mask(max, _mm512_set1_ps(layout::kSmallestMax), _CMP_GT_OQ);
  const __m512 most = _mm512_set1_ps(127.0f);
  const __m512 inverse = _mm512_maskz_div_ps(usual, most, max);
  std::byte* codes = out + 32 * g;
  const __m512 inverses[4] = {
      _mm512_shuffle_f32x4(inverse, inverse, 0x00), _mm512_shuffle_f32x4(inverse, inverse, 0x55),
      _mm512_shuffle_f32x4(inverse, inverse, 0xaa), _mm512_shuffle_f32x4(inverse, inverse, 0xff)};
  for (int i = 0; i < 8; ++i) round_16(x + 16 * i, inverses[i / 2], codes + 16 * i);
  // Lanes of `low` are sums 0-3 of 16 codes, of `high` 4-7; picks one element of each.
  const __m512i low = sums_of_4_runs(codes), high = sums_of_4_runs(codes + 64);
  const __m512i sums16 =
      _mm512_permutex2var_epi32(low, _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 28, 24, 20, 16, 12, 8, 4, 0), high);
  const __m256i all = _mm512_castsi512_si256(sums16);
  const __m128i sums = _mm256_cvtepi64_epi32(_mm256_add_epi32(all, _mm256_srli_epi64(all, 32)));
  const __m512 scale = _mm512_maskz_div_ps(usual, max, most);
  const __m128 scales = _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, scale));
  const __m256i offset = _mm256_set1_epi32(-layout::kSumOffset);
  _mm_storeu_ps(array_at<float>(out, row.scale) + g, scales);
  _mm_storeu_ps(array_at<float>(out, row.scaled_sum) + g, _mm_mul_ps(scales, _mm_cvtepi32_ps(sums)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(array_at<std::int32_t>(out, row.start) + g),
                   _mm_mullo_epi32(sums, _mm256_castsi256_si128(offset)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(array_at<std::int32_t>(out, row.start16) + 2 * g),
                      _mm256_mullo_epi32(all, offset));
}

inline void prepare_group(const float* x, std::size_t g, const layout::Group32Row& row, std::byte* out) {
  const float max = max_magnitude(x, 32), scale = scale_of_max(max);
  const __m512 inverse = _mm512_set1_ps(inverse_of_max(max));
  const std::int32_t low = _mm512_reduce_add_epi32(round_16(x, inverse, out + 32 * g));
  const std::int32_t high = _mm512_reduce_add_epi32(round_16(x + 16, inverse, out + 32 * g + 16));
  array_at<float>(out, row.scale)[g] = scale;
  array_at<float>(out, row.scaled_sum)[g] = scale * static_cast<float>(low + high);
  array_at<std::int32_t>(out, row.start)[g] = -layout::kSumOffset * (low + high);
  array_at<std::int32_t>(out, row.start16)[2 * g] = -layout::kSumOffset * low;
  array_at<std::int32_t>(out, row.start16)[2 * g + 1] = -layout::kSumOffset * high;
}

}  // namespace

void prepare_i8_group32(const float* x, std::size_t k, std::size_t row_index, std::byte* prepared) {
  const layout::Group32Row row = layout::group32_row(k);
  std::byte* out = prepared + row_index * row.bytes;
  std::size_t g = 0;
  for (; g + 4 <= k / 32; g += 4) prepare_4_groups(x + 32 * g, g, row, out);
  for (; g < k / 32; ++g) prepare_group(x + 32 * g, g, row, out);
}

void prepare_i8_group256(const float* x, std::size_t k, std::size_t row_index, std::byte* prepared) {
  const layout::Group256Row row = layout::group256_row(k);
  std::byte* out = prepared + row_index * row.bytes;
  for (std::size_t g = 0; g * 256 < k; ++g) {
    const std::size_t count = k - 256 * g < 256 ? k - 256 * g : 256;
    const float max = max_magnitude(x + 256 * g, count);
    const __m512 inverse = _mm512_set1_ps(inverse_of_max(max));
    __m512i sum = _mm512_setzero_si512();
    for (std::size_t i = 256 * g; i < 256 * g + count; i += 16)
      sum = _mm512_add_epi32(sum, round_16(x + i, inverse, out + i));
    array_at<float>(out, row.scale)[g] = scale_of_max(max);
    array_at<std::int32_t>(out, row.start)[g] = -_mm512_reduce_add_epi32(sum);
  }
  for (std::size_t i = k; i < row.scale; i += 32)
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), _mm256_setzero_si256());
}

void rms_norm(const float* x, const float* weight, float* out, std::size_t dim, float eps) {
  __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  std::size_t i = 0;
  for (; i + 64 <= dim; i += 64)
    for (std::size_t j = 0; j < 4; ++j) {
      const __m512 v = _mm512_loadu_ps(x + i + 16 * j);
      sums[j] = _mm512_fmadd_ps(v, v, sums[j]);
    }
  for (; i < dim; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(first_lanes(dim - i), x + i);
    sums[0] = _mm512_fmadd_ps(v, v, sums[0]);
  }
  const float sum = sum_of_lanes(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
  const __m128 mean = _mm_set_ss(sum / static_cast<float>(dim) + eps);
  const __m512 inverse = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
  for (i = 0; i < dim; i += 16) {
    const __mmask16 mask = first_lanes(dim - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, weight + i)));
  }
}

namespace {

// Rotates 8 pairs; the cosines and sines are in the low half.
inline __m512 rotated_pairs(__m512 pairs, __m512 cos, __m512 sin) {
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __m512 c = _mm512_permutexvar_ps(twice, cos), s = _mm512_permutexvar_ps(twice, sin);
  // Swaps by a rotation, because shuffles of 64 bytes have only one port.
  const __m512 swapped = _mm512_castsi512_ps(_mm512_rol_epi64(_mm512_castps_si512(pairs), 32));
  return _mm512_fmaddsub_ps(pairs, c, _mm512_mul_ps(swapped, s));  // even lanes subtract, odd lanes add
}

}  // namespace

void rope(float* x, const float* cos, const float* sin, std::size_t rotated) {
  const auto eight = [](const float* from) { return _mm512_castps256_ps512(_mm256_loadu_ps(from)); };
  std::size_t i = 0;
  for (; i + 16 <= rotated; i += 16)
    _mm512_storeu_ps(x + i, rotated_pairs(_mm512_loadu_ps(x + i), eight(cos + i / 2), eight(sin + i / 2)));
  if (i == rotated) return;
  const __mmask16 mask = first_lanes(rotated - i), half = first_lanes((rotated - i) / 2);
  const __m512 pairs = _mm512_maskz_loadu_ps(mask, x + i);
  const __m512 c = _mm512_maskz_loadu_ps(half, cos + i / 2), s = _mm512_maskz_loadu_ps(half, sin + i / 2);
  _mm512_mask_storeu_ps(x + i, mask, rotated_pairs(pairs, c, s));
}

void soft_cap(float* x, float cap, std::size_t count) {
  const __m512 caps = _mm512_set1_ps(cap), inverse = _mm512_set1_ps(1.0f / cap);
  for (std::size_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse);
    _mm512_mask_storeu_ps(x + i, mask, _mm512_mul_ps(caps, tanh_avx512(scaled)));
  }
}

void add(float* x, const float* y, std::size_t count) {
  std::size_t i = 0;
  for (; i + 64 <= count; i += 64)
    for (std::size_t j = i; j < i + 64; j += 16)
      _mm512_storeu_ps(x + j, _mm512_add_ps(_mm512_loadu_ps(x + j), _mm512_loadu_ps(y + j)));
  for (; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    _mm512_mask_storeu_ps(x + i, mask,
                          _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i)));
  }
}

MaxAt arg_max(const float* x, std::size_t count) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 max[4] = {lowest, lowest, lowest, lowest};
  std::size_t i = 0;
  for (; i + 64 <= count; i += 64)
    for (std::size_t j = 0; j < 4; ++j)  // NaN in the first operand: keeps the second
      max[j] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * j), max[j]);
  for (; i < count; i += 16)
    max[0] = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, first_lanes(count - i), x + i), max[0]);
  const float value = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(max[0], max[1]), _mm512_max_ps(max[2], max[3])));
  for (i = 0; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    const __mmask16 equal =
        _mm512_mask_cmp_ps_mask(mask, _mm512_maskz_loadu_ps(mask, x + i), _mm512_set1_ps(value), _CMP_EQ_OQ);
    if (equal != 0) return {value, static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(__builtin_ctz(equal))};
  }
  return {value, 0};
}

float exp_tile(const float* x, float max, float inv_temperature, float* out, std::size_t count) {
  const __m512 m = _mm512_set1_ps(max), t = _mm512_set1_ps(inv_temperature);
  __m512 sum = _mm512_setzero_ps();
  for (std::size_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    const __m512 e = exp_avx512(_mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), m), t));
    _mm512_mask_storeu_ps(out + i, mask, e);
    sum = _mm512_mask_add_ps(sum, mask, sum, e);
  }
  return sum_of_lanes(sum);
}

void clamp(float* x, float limit, std::size_t count) {
  const __m512 low = _mm512_set1_ps(-limit), high = _mm512_set1_ps(limit);
  // NaN in the first operand: becomes the second.
  const auto clamped = [=](__m512 value) { return _mm512_min_ps(_mm512_max_ps(value, low), high); };
  std::size_t i = 0;
  for (; i + 64 <= count; i += 64)
    for (std::size_t j = i; j < i + 64; j += 16) _mm512_storeu_ps(x + j, clamped(_mm512_loadu_ps(x + j)));
  for (; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    _mm512_mask_storeu_ps(x + i, mask, clamped(_mm512_maskz_loadu_ps(mask, x + i)));
  }
}

std::size_t collect(const float* x, std::size_t count, float least, std::int32_t first_id, std::int32_t* ids,
                    float* values) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    const __m512 value = _mm512_maskz_loadu_ps(mask, x + i);
    const __mmask16 passes = _mm512_mask_cmp_ps_mask(mask, value, _mm512_set1_ps(least), _CMP_GE_OQ);
    if (passes == 0) continue;
    const auto number = static_cast<std::size_t>(__builtin_popcount(passes));
    const __m512i id = _mm512_add_epi32(lanes, _mm512_set1_epi32(first_id + static_cast<std::int32_t>(i)));
    _mm512_mask_storeu_epi32(ids + kept, first_lanes(number), _mm512_maskz_compress_epi32(passes, id));
    _mm512_mask_storeu_ps(values + kept, first_lanes(number), _mm512_maskz_compress_ps(passes, value));
    kept += number;
  }
  return kept;
}

void sums_above(const float* x, std::size_t count, const float (&least)[kNumBounds], float (&sums)[kNumBounds]) {
  __m512 sum[kNumBounds];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  for (std::size_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    const __m512 value = _mm512_maskz_loadu_ps(mask, x + i);
    for (std::size_t j = 0; j < kNumBounds; ++j)
      sum[j] = _mm512_mask_add_ps(sum[j], _mm512_mask_cmp_ps_mask(mask, value, _mm512_set1_ps(least[j]), _CMP_GE_OQ),
                                  sum[j], value);
  }
  for (std::size_t j = 0; j < kNumBounds; ++j) sums[j] = _mm512_reduce_add_ps(sum[j]);
}

}  // namespace troupe::kernels::avx512
