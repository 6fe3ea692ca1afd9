// Operations on rows with AVX2: rounding of activations, norms, elementwise work, sampling.
#include <immintrin.h>

#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/rows/exp_avx2.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
namespace {

// All ones in the first `count` lanes, count < 8.
inline __m256i first_lanes(std::size_t count) {
  static constexpr std::int32_t kOnesThenZeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOnesThenZeros + 8 - count));
}

// The first `count` floats (at most 8), then zeros; later ones are not read or written.
inline __m256 load_first(const float* from, std::size_t count) {
  return count >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, first_lanes(count));
}
inline void store_first(float* to, std::size_t count, __m256 x) {
  if (count >= 8)
    _mm256_storeu_ps(to, x);
  else
    _mm256_maskstore_ps(to, first_lanes(count), x);
}

// Adds 16 lanes: i and i + 8, then + 4, ...: the order of the scalar variant.
inline float sum_of_lanes(__m256 low, __m256 high) { return kernels::sum_of_lanes(_mm256_add_ps(low, high)); }
inline std::int32_t sum_of_lanes(__m256i x) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

inline float max_magnitude(const float* x, std::size_t count) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 max = _mm256_setzero_ps();
  for (std::size_t i = 0; i < count; i += 8)  // NaN in the first operand: keeps the second
    max = _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)), max);
  return max_of_lanes(max);
}

inline float inverse_of_max(float max) { return max > layout::kSmallestMax ? 127.0f / max : 0.0f; }
inline float scale_of_max(float max) { return max > layout::kSmallestMax ? max / 127.0f : 0.0f; }

inline __m256i round_8(const float* x, __m256 inverse) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
  return _mm256_cvtps_epi32(  // NaN in the first operand of max: -127
      _mm256_min_ps(_mm256_max_ps(scaled, _mm256_set1_ps(-127.0f)), _mm256_set1_ps(127.0f)));
}

// Writes 16 codes; returns their sums, in 8 lanes.
inline __m256i round_16(const float* x, __m256 inverse, std::byte* codes) {
  const __m256i low = round_8(x, inverse), high = round_8(x + 8, inverse);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  const __m128i packed = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), packed);
  return _mm256_add_epi32(low, high);
}

}  // namespace

void prepare_i8_group32(const float* x, std::size_t k, std::size_t row_index, std::byte* prepared) {
  const layout::Group32Row row = layout::group32_row(k);
  std::byte* out = prepared + row_index * row.bytes;
  for (std::size_t g = 0; g < k / 32; ++g, x += 32) {
    const float max = max_magnitude(x, 32);
    const __m256 inverse = _mm256_set1_ps(inverse_of_max(max));
    const std::int32_t low = sum_of_lanes(round_16(x, inverse, out + 32 * g));
    const std::int32_t high = sum_of_lanes(round_16(x + 16, inverse, out + 32 * g + 16));
    const float scale = scale_of_max(max);
    store(out + row.scale + 4 * g, scale);
    store(out + row.scaled_sum + 4 * g, scale * static_cast<float>(low + high));
    store(out + row.start + 4 * g, -layout::kSumOffset * (low + high));
    store(out + row.start16 + 8 * g, -layout::kSumOffset * low);
    store(out + row.start16 + 8 * g + 4, -layout::kSumOffset * high);
  }
}

void prepare_i8_group256(const float* x, std::size_t k, std::size_t row_index, std::byte* prepared) {
  const layout::Group256Row row = layout::group256_row(k);
  std::byte* out = prepared + row_index * row.bytes;
  for (std::size_t g = 0; g * 256 < k; ++g) {
    const std::size_t count = k - 256 * g < 256 ? k - 256 * g : 256;
    const float max = max_magnitude(x + 256 * g, count);
    const __m256 inverse = _mm256_set1_ps(inverse_of_max(max));
    __m256i sum = _mm256_setzero_si256();
    for (std::size_t i = 256 * g; i < 256 * g + count; i += 16)
      sum = _mm256_add_epi32(sum, round_16(x + i, inverse, out + i));
    store(out + row.scale + 4 * g, scale_of_max(max));
    store(out + row.start + 4 * g, -sum_of_lanes(sum));
  }
  for (std::size_t i = k; i < row.scale; i += 32)
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), _mm256_setzero_si256());
}

void rms_norm(const float* x, const float* weight, float* out, std::size_t dim, float eps) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (std::size_t i = 0; i < dim; i += 16) {
    const __m256 a = load_first(x + i, dim - i);
    low = _mm256_add_ps(low, _mm256_mul_ps(a, a));
    if (dim - i <= 8) break;
    const __m256 b = load_first(x + i + 8, dim - i - 8);
    high = _mm256_add_ps(high, _mm256_mul_ps(b, b));
  }
  const __m128 mean = _mm_set_ss(sum_of_lanes(low, high) / static_cast<float>(dim) + eps);
  const __m256 inverse = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
  for (std::size_t i = 0; i < dim; i += 8) {
    const __m256 scaled = _mm256_mul_ps(load_first(x + i, dim - i), inverse);
    store_first(out + i, dim - i, _mm256_mul_ps(scaled, load_first(weight + i, dim - i)));
  }
}

void rope(float* x, const float* cos, const float* sin, std::size_t rotated) {
  // Four numbers, each twice. Both halves get all four, so that no shuffle crosses lanes: such shuffles have one port,
  // others two.
  const auto twice = [](const float* four) {
    const __m256 both = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(four));
    return _mm256_permutevar_ps(both, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
  };
  const std::size_t num_pairs = rotated / 2;
  std::size_t i = 0;
#pragma GCC unroll 4
  for (; i + 4 <= num_pairs; i += 4) {
    const __m256 pairs = _mm256_loadu_ps(x + 2 * i);
    const __m256 swapped = _mm256_permute_ps(pairs, 0xb1);
    // Even lanes subtract, odd lanes add.
    const __m256 rotated_pairs =
        _mm256_addsub_ps(_mm256_mul_ps(pairs, twice(cos + i)), _mm256_mul_ps(swapped, twice(sin + i)));
    _mm256_storeu_ps(x + 2 * i, rotated_pairs);
  }
  if (i < num_pairs) scalar::rope(x + 2 * i, cos + i, sin + i, rotated - 2 * i);
}

void soft_cap(float* x, float cap, std::size_t count) {
  const __m256 caps = _mm256_set1_ps(cap), inverse = _mm256_set1_ps(1.0f / cap);
  for (std::size_t i = 0; i < count; i += 8)
    store_first(x + i, count - i, _mm256_mul_ps(caps, tanh_avx2(_mm256_mul_ps(load_first(x + i, count - i), inverse))));
}

void add(float* x, const float* y, std::size_t count) {
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32)
    for (std::size_t j = i; j < i + 32; j += 8)
      _mm256_storeu_ps(x + j, _mm256_add_ps(_mm256_loadu_ps(x + j), _mm256_loadu_ps(y + j)));
  for (; i < count; i += 8)
    store_first(x + i, count - i, _mm256_add_ps(load_first(x + i, count - i), load_first(y + i, count - i)));
}

MaxAt arg_max(const float* x, std::size_t count) {
  const std::size_t whole = count / 8 * 8;
  __m256 max = _mm256_set1_ps(-__builtin_inff());
  for (std::size_t i = 0; i < whole; i += 8) max = _mm256_max_ps(_mm256_loadu_ps(x + i), max);  // ignores NaN
  float value = max_of_lanes(max);
  for (std::size_t i = whole; i < count; ++i) value = x[i] > value ? x[i] : value;
  for (std::size_t i = 0; i < whole; i += 8) {
    const int equal = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(value), _CMP_EQ_OQ));
    if (equal != 0) return {value, static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(__builtin_ctz(equal))};
  }
  for (std::size_t i = whole; i < count; ++i)
    if (x[i] == value) return {value, static_cast<std::uint32_t>(i)};
  return {value, 0};
}

float exp_tile(const float* x, float max, float inv_temperature, float* out, std::size_t count) {
  const __m256 m = _mm256_set1_ps(max), t = _mm256_set1_ps(inv_temperature);
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (std::size_t i = 0; i < count; i += 8) {
    __m256 e = exp_avx2(_mm256_mul_ps(_mm256_sub_ps(load_first(x + i, count - i), m), t));
    if (count - i < 8) e = _mm256_and_ps(e, _mm256_castsi256_ps(first_lanes(count - i)));
    store_first(out + i, count - i, e);
    sums[i / 8 % 2] = _mm256_add_ps(sums[i / 8 % 2], e);
  }
  return sum_of_lanes(sums[0], sums[1]);
}

void clamp(float* x, float limit, std::size_t count) {
  const __m256 low = _mm256_set1_ps(-limit), high = _mm256_set1_ps(limit);
  const std::size_t whole = count / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8)  // NaN in the first operand: becomes the second
    _mm256_storeu_ps(x + i, _mm256_min_ps(_mm256_max_ps(_mm256_loadu_ps(x + i), low), high));
  for (std::size_t i = whole; i < count; ++i) {
    const float above = x[i] > -limit ? x[i] : -limit;
    x[i] = above < limit ? above : limit;
  }
}

std::size_t collect(const float* x, std::size_t count, float least, std::int32_t first_id, std::int32_t* ids,
                    float* values) {
  const std::size_t whole = count / 8 * 8;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += 8) {
    unsigned passes = 0;
    if (i < whole)
      passes = static_cast<unsigned>(
          _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(least), _CMP_GE_OQ)));
    else
      for (std::size_t j = i; j < count; ++j) passes |= static_cast<unsigned>(x[j] >= least) << (j - i);
    for (; passes != 0; passes &= passes - 1) {
      const std::size_t at = i + static_cast<std::size_t>(__builtin_ctz(passes));
      ids[kept] = first_id + static_cast<std::int32_t>(at);
      values[kept++] = x[at];
    }
  }
  return kept;
}

void sums_above(const float* x, std::size_t count, const float (&least)[kNumBounds], float (&sums)[kNumBounds]) {
  const std::size_t whole = count / 8 * 8;
  __m256 sum[kNumBounds];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  for (std::size_t i = 0; i < whole; i += 8) {
    const __m256 value = _mm256_loadu_ps(x + i);
    for (std::size_t j = 0; j < kNumBounds; ++j)
      sum[j] = _mm256_add_ps(sum[j], _mm256_and_ps(value, _mm256_cmp_ps(value, _mm256_set1_ps(least[j]), _CMP_GE_OQ)));
  }
  for (std::size_t j = 0; j < kNumBounds; ++j) {
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, sum[j]);
    sums[j] = 0;
    for (const float lane : lanes) sums[j] += lane;
    for (std::size_t i = whole; i < count; ++i) sums[j] += x[i] >= least[j] ? x[i] : 0.0f;
  }
}

}  // namespace troupe::kernels::avx2
