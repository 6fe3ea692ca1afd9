// Attention with AVX-512. Row tiles of up to 8 query rows share every load of K and V; within a row tile each row goes
// through the same instructions as alone, so row tiles do not change bits.
#include <immintrin.h>

#include "kernels/formats/packed_layout.h"
#include "kernels/rows/exp_avx512.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512 {
namespace {

constexpr std::size_t kPositions = kBlockPositions;

inline __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}
// The mask of those of the 16 positions from `begin` on that are below `end`.
inline __mmask16 lanes_below(std::size_t begin, std::size_t end) {
  return end > begin ? first_lanes(end - begin) : __mmask16{0};
}

inline float sum_of_lanes(__m512 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

struct F32 {
  static constexpr std::size_t kBytes = 4;
  static constexpr bool kScaled = false;
  static __m512 load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static __m512 load(const std::byte* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
};
struct F16 {
  static constexpr std::size_t kBytes = 2;
  static constexpr bool kScaled = false;
  static __m512 load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m512 load(const std::byte* p, __mmask16 mask) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p)); }
};
struct I8 {  // codes; scores and weights are multiplied with the scales
  static constexpr std::size_t kBytes = 1;
  static constexpr bool kScaled = true;
  static __m512 of(__m128i codes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)); }
  static __m512 load(const std::byte* p) { return of(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static __m512 load(const std::byte* p, __mmask16 mask) { return of(_mm_maskz_loadu_epi8(mask, p)); }
};

inline void prefetch(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

// Up to 8 query rows over one split. weights [rows][kSplitPositions]: first scores, then the weights of V.
template <class Kv>
struct Tile {
  Tile(const AttentionSplit& of, const AttentionRow* first) : split(of), rows(first) {
    const KvShape& shape = of.shape;
    dim = shape.head_dim;
    elements_bytes = dim * kPositions * Kv::kBytes;
    k_offset = of.kv_head * shape.head_bytes();
    v_offset = k_offset + shape.v_offset();
    weights = reinterpret_cast<float*>(of.scratch);
  }
  const AttentionSplit& split;
  const AttentionRow* rows;
  std::size_t dim, elements_bytes, k_offset, v_offset;
  float* weights;

  // The block after `block`, to prefetch; after the last one `otherwise`, or if null `block` again.
  const std::byte* next(std::size_t block, std::size_t num_blocks, const std::byte* otherwise) const {
    return block + 1 < num_blocks ? split.blocks[block + 1] : otherwise ? otherwise : split.blocks[block];
  }
};

// Computes the scaled scores of one block, -infinity for positions that a row does not see; updates `max`.
template <class Kv, std::size_t R>
void score_block(const Tile<Kv>& tile, std::size_t block, const std::byte* next, __m512 (&max)[R]) {
  __m512 scores[R][2];
  for (std::size_t r = 0; r < R; ++r) scores[r][0] = scores[r][1] = _mm512_setzero_ps();
  const std::byte* const part = tile.split.blocks[block] + tile.k_offset;
  const std::byte* k = part;
  for (std::size_t d = 0; d < tile.dim; ++d, k += kPositions * Kv::kBytes, next += kPositions * Kv::kBytes) {
    prefetch(next);
    const __m512 low = Kv::load(k), high = Kv::load(k + 16 * Kv::kBytes);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r) {
      const __m512 q = _mm512_set1_ps(tile.rows[r].q[d]);
      scores[r][0] = _mm512_fmadd_ps(q, low, scores[r][0]);
      scores[r][1] = _mm512_fmadd_ps(q, high, scores[r][1]);
    }
  }
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff()), scale = _mm512_set1_ps(tile.split.scale);
  const float cap = tile.split.soft_cap;
  for (std::size_t half = 0; half < 2; ++half) {
    const std::size_t first = block * kPositions + 16 * half;
    __m512 scales = scale;
    if (Kv::kScaled) scales = _mm512_mul_ps(_mm512_loadu_ps(part + tile.elements_bytes + 64 * half), scale);
    for (std::size_t r = 0; r < R; ++r) {
      const __mmask16 seen = lanes_below(first, tile.rows[r].num_seen) &
                             static_cast<__mmask16>(~lanes_below(first, tile.rows[r].first_seen));
      __m512 score = _mm512_mask_mul_ps(lowest, seen, scores[r][half], scales);
      if (Kv::kScaled && tile.rows[r].offsets)
        score = _mm512_mask3_fmadd_ps(_mm512_loadu_ps(tile.rows[r].offsets + first), scale, score, seen);
      if (cap != 0.0f)
        score = _mm512_mask_mul_ps(lowest, seen, _mm512_set1_ps(cap),
                                   tanh_avx512(_mm512_mul_ps(score, _mm512_set1_ps(1.0f / cap))));
      _mm512_store_ps(tile.weights + r * kSplitPositions + first, score);
      max[r] = _mm512_max_ps(score, max[r]);
    }
  }
}

// Turns one row's scores into weights. Positions that it does not see get exp(-infinity) = 0.
template <class Kv>
void weigh_row(const Tile<Kv>& tile, std::size_t r, __m512 max_lanes) {
  const AttentionRow& row = tile.rows[r];
  const float max = _mm512_reduce_max_ps(max_lanes);
  const __m512 maxima = _mm512_set1_ps(max);
  __m512 sum = _mm512_setzero_ps();
  float* weights = tile.weights + r * kSplitPositions;
  for (std::size_t p = row.first_seen / 16 * 16; p < row.num_seen; p += 16) {
    __m512 weight = exp_avx512(_mm512_sub_ps(_mm512_load_ps(weights + p), maxima));
    sum = _mm512_add_ps(sum, weight);
    if (Kv::kScaled) {
      const std::byte* scales = tile.split.blocks[p / kPositions] + tile.v_offset + tile.elements_bytes;
      weight = _mm512_mul_ps(weight, _mm512_loadu_ps(scales + p % kPositions * sizeof(float)));
    }
    _mm512_store_ps(weights + p, weight);
  }
  row.partial[0] = max;
  row.partial[1] = sum_of_lanes(sum);
}

// The positions that all rows see; if there are none, an empty range.
struct Common {
  std::size_t begin, end;
};
inline Common common_positions(const AttentionRow* rows, std::size_t count) {
  Common common{rows[0].first_seen, rows[0].num_seen};
  for (std::size_t r = 1; r < count; ++r) {
    common.begin = rows[r].first_seen > common.begin ? rows[r].first_seen : common.begin;
    common.end = rows[r].num_seen < common.end ? rows[r].num_seen : common.end;
  }
  if (common.begin > common.end) common.begin = common.end;
  return common;
}

// The weighted sums of C vectors of dimensions from d on.
template <class Kv, std::size_t R, std::size_t C>
void add_values(const Tile<Kv>& tile, std::size_t d, __mmask16 mask, std::size_t num_blocks) {
  const auto load = [&](const std::byte* at, std::size_t c) {
    return Kv::load(at + 16 * c * Kv::kBytes, c + 1 == C ? mask : __mmask16{0xffff});
  };
  const std::size_t row_bytes = tile.dim * Kv::kBytes, offset = tile.v_offset + d * Kv::kBytes;
  const Common common = common_positions(tile.rows, R);
  __m512 sums[R][C];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (std::size_t c = 0; c < C; ++c) sums[r][c] = _mm512_setzero_ps();
  // Slots that a row does not see may hold any bits, also NaN: they are not read for this row.
  const auto add_alone = [&](std::size_t r, std::size_t begin, std::size_t end) {
    for (std::size_t p = begin; p < end; ++p) {
      const std::byte* v = tile.split.blocks[p / kPositions] + offset + p % kPositions * row_bytes;
      const __m512 weight = _mm512_set1_ps(tile.weights[r * kSplitPositions + p]);
      for (std::size_t c = 0; c < C; ++c) sums[r][c] = _mm512_fmadd_ps(weight, load(v, c), sums[r][c]);
    }
  };
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r) add_alone(r, tile.rows[r].first_seen, common.begin);
  for (std::size_t block = common.begin / kPositions; block * kPositions < common.end; ++block) {
    const std::size_t first = block * kPositions;
    const std::size_t begin = first < common.begin ? common.begin : first;
    const std::size_t end = common.end - first < kPositions ? common.end : first + kPositions;
    const std::byte* v = tile.split.blocks[block] + offset + (begin - first) * row_bytes;
    const std::byte* next = tile.next(block, num_blocks, nullptr) + offset + (begin - first) * row_bytes;
    for (std::size_t p = begin; p < end; ++p, v += row_bytes, next += row_bytes) {
      prefetch(next);
      __m512 x[C];
#pragma GCC unroll 2
      for (std::size_t c = 0; c < C; ++c) x[c] = load(v, c);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < R; ++r) {
        const __m512 weight = _mm512_set1_ps(tile.weights[r * kSplitPositions + p]);
#pragma GCC unroll 2
        for (std::size_t c = 0; c < C; ++c) sums[r][c] = _mm512_fmadd_ps(weight, x[c], sums[r][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r) {
    const std::size_t first = tile.rows[r].first_seen;
    add_alone(r, first < common.end ? common.end : first, tile.rows[r].num_seen);
    for (std::size_t c = 0; c < C; ++c) _mm512_store_ps(tile.rows[r].partial + kPartialValues + d + 16 * c, sums[r][c]);
  }
}

template <class Kv, std::size_t R>
void attend_tile(const AttentionSplit& split, std::size_t first_row) {
  const Tile<Kv> tile(split, split.rows.data() + first_row);
  __m512 max[R];
  std::size_t most = 0, first = kSplitPositions;
  for (std::size_t r = 0; r < R; ++r) {
    max[r] = _mm512_set1_ps(-__builtin_inff());
    most = tile.rows[r].num_seen > most ? tile.rows[r].num_seen : most;
    first = tile.rows[r].first_seen < first ? tile.rows[r].first_seen : first;
  }
  const std::size_t num_blocks = (most + kPositions - 1) / kPositions, first_block = first / kPositions;
  for (std::size_t block = first_block; block < num_blocks; ++block) {
    // After the last K block, prefetch the first V block.
    const std::byte* next =
        block + 1 < num_blocks ? split.blocks[block + 1] + tile.k_offset : split.blocks[first_block] + tile.v_offset;
    score_block<Kv, R>(tile, block, next, max);
  }
  for (std::size_t r = 0; r < R; ++r) weigh_row<Kv>(tile, r, max[r]);
  std::size_t d = 0;
  for (; d + 32 <= tile.dim; d += 32) add_values<Kv, R, 2>(tile, d, 0xffff, num_blocks);
  for (; d < tile.dim; d += 16) add_values<Kv, R, 1>(tile, d, first_lanes(tile.dim - d), num_blocks);
}

template <class Kv>
void attend(const AttentionSplit& split) {
  const std::size_t num_rows = split.rows.size();
  std::size_t row = 0;
  for (; row + 8 <= num_rows; row += 8) attend_tile<Kv, 8>(split, row);
  if (num_rows - row >= 4) {
    attend_tile<Kv, 4>(split, row);
    row += 4;
  }
  if (num_rows - row >= 2) {
    attend_tile<Kv, 2>(split, row);
    row += 2;
  }
  if (num_rows - row == 1) attend_tile<Kv, 1>(split, row);
}

// Stores 16 (or `count`) elements in column `slot` of a K part.
template <class T>
inline void put_column(const T* elements, std::size_t count, T* column) {
  if (count < 16) {
    for (std::size_t i = 0; i < count; ++i) column[i * kPositions] = elements[i];
    return;
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) column[i * kPositions] = elements[i];
}

void store_halves(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim;
  const __m512 most = _mm512_set1_ps(65504.0f), least = _mm512_set1_ps(-65504.0f);
  const auto halves = [&](const float* x, __mmask16 mask) {  // NaN in the first operand: the second
    const __m512 limited = _mm512_min_ps(_mm512_max_ps(_mm512_maskz_loadu_ps(mask, x), least), most);
    return _mm512_cvtps_ph(limited, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  };
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head, k += dim, v += dim) {
    auto* k_head = reinterpret_cast<std::uint16_t*>(layer_block + head * shape.head_bytes()) + slot;
    auto* v_row =
        reinterpret_cast<std::uint16_t*>(layer_block + shape.v_offset() + head * shape.head_bytes()) + slot * dim;
    for (std::size_t d = 0; d < dim; d += 16) {
      const __mmask16 mask = first_lanes(dim - d);
      alignas(32) std::uint16_t column[16];
      _mm256_store_si256(reinterpret_cast<__m256i*>(column), halves(k + d, mask));
      _mm256_mask_storeu_epi16(v_row + d, mask, halves(v + d, mask));
      put_column(column, dim - d, k_head + d * kPositions);
    }
  }
}

// One head's scale, and the factor from its values to codes.
struct Scale {
  float scale;
  __m512 inverse;
};
Scale scale_of(const float* x, std::size_t dim) {
  __m512 max = _mm512_setzero_ps();
  for (std::size_t d = 0; d < dim; d += 16)  // NaN in the first operand: keeps the second
    max = _mm512_max_ps(_mm512_abs_ps(_mm512_maskz_loadu_ps(first_lanes(dim - d), x + d)), max);
  float largest = _mm512_reduce_max_ps(max);
  largest = largest < 1e38f ? largest : 1e38f;  // keeps 127 times the scale finite
  const bool usual = largest > layout::kSmallestMax;
  return {usual ? largest / 127.0f : 0.0f, _mm512_set1_ps(usual ? 127.0f / largest : 0.0f)};
}
__m128i codes_of(const float* x, __mmask16 mask, __m512 inverse) {
  const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x), inverse);
  const __m512 limited = _mm512_min_ps(_mm512_max_ps(scaled, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f));
  return _mm512_cvtepi32_epi8(_mm512_cvt_roundps_epi32(limited, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

void store_codes(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim;
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head, k += dim, v += dim) {
    std::byte* k_head = layer_block + head * shape.head_bytes();
    std::byte* v_head = k_head + shape.v_offset();
    const Scale k_scale = scale_of(k, dim), v_scale = scale_of(v, dim);
    reinterpret_cast<float*>(k_head + shape.elements_bytes())[slot] = k_scale.scale;
    reinterpret_cast<float*>(v_head + shape.elements_bytes())[slot] = v_scale.scale;
    for (std::size_t d = 0; d < dim; d += 16) {
      const __mmask16 mask = first_lanes(dim - d);
      alignas(16) std::byte column[16];
      _mm_store_si128(reinterpret_cast<__m128i*>(column), codes_of(k + d, mask, k_scale.inverse));
      _mm_mask_storeu_epi8(v_head + slot * dim + d, mask, codes_of(v + d, mask, v_scale.inverse));
      put_column(column, dim - d, k_head + d * kPositions + slot);
    }
  }
}

// N blocks of score_offsets.
template <std::size_t N>
void offsets_of_blocks(const float* q, const float* part, std::size_t dim, float* out) {
  __m512 sums[N][2];
#pragma GCC unroll 8
  for (std::size_t n = 0; n < N; ++n) sums[n][0] = sums[n][1] = _mm512_setzero_ps();
  for (std::size_t d = 0; d < dim; ++d, part += kPositions) {
    const __m512 low = _mm512_loadu_ps(part), high = _mm512_loadu_ps(part + 16);
#pragma GCC unroll 8
    for (std::size_t n = 0; n < N; ++n) {
      const __m512 x = _mm512_set1_ps(q[n * dim + d]);
      sums[n][0] = _mm512_fmadd_ps(x, low, sums[n][0]);
      sums[n][1] = _mm512_fmadd_ps(x, high, sums[n][1]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t n = 0; n < N; ++n) {
    _mm512_storeu_ps(out + n * kPositions, sums[n][0]);
    _mm512_storeu_ps(out + n * kPositions + 16, sums[n][1]);
  }
}

}  // namespace

void score_offsets(const float* q, const float* part, std::size_t head_dim, std::size_t num_blocks, float* out) {
  std::size_t block = 0;
  for (; block + 8 <= num_blocks; block += 8)
    offsets_of_blocks<8>(q + block * head_dim, part, head_dim, out + block * kPositions);
  for (; block + 4 <= num_blocks; block += 4)
    offsets_of_blocks<4>(q + block * head_dim, part, head_dim, out + block * kPositions);
  for (; block < num_blocks; ++block)
    offsets_of_blocks<1>(q + block * head_dim, part, head_dim, out + block * kPositions);
}

void attend_split(const AttentionSplit& split) {
  switch (split.shape.type) {
    case KvType::f32:
      return attend<F32>(split);
    case KvType::f16:
      return attend<F16>(split);
    case KvType::i8:
      return attend<I8>(split);
  }
}

void merge_partial(const float* partial, std::size_t head_dim, float* total) {
  const float max = partial[0] > total[0] ? partial[0] : total[0];
  // Combined in registers: a vector load of two floats just stored separately would stall, because stores are not
  // forwarded to a wider load.
  const __m128 below = _mm_unpacklo_ps(_mm_set_ss(total[0] - max), _mm_set_ss(partial[0] - max));
  const __m128 first = _mm512_castps512_ps128(exp_avx512(_mm512_zextps128_ps512(below)));
  const __m128 second = _mm_movehdup_ps(first);
  const __m512 a = _mm512_broadcastss_ps(first), b = _mm512_broadcastss_ps(second);
  total[0] = max;
  total[1] = total[1] * _mm_cvtss_f32(first) + partial[1] * _mm_cvtss_f32(second);
  for (std::size_t i = kPartialValues; i < kPartialValues + head_dim; i += 16)
    _mm512_store_ps(total + i,
                    _mm512_fmadd_ps(_mm512_load_ps(total + i), a, _mm512_mul_ps(_mm512_load_ps(partial + i), b)));
}

void finish_attention(const float* total, std::size_t head_dim, float* out) {
  const __m512 sum = _mm512_set1_ps(total[1]);
  for (std::size_t d = 0; d < head_dim; d += 16)
    _mm512_mask_storeu_ps(out + d, first_lanes(head_dim - d),
                          _mm512_div_ps(_mm512_load_ps(total + kPartialValues + d), sum));
}

void store_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  switch (shape.type) {
    case KvType::f32:
      return scalar::store_kv(shape, layer_block, slot, k, v);
    case KvType::f16:
      return store_halves(shape, layer_block, slot, k, v);
    case KvType::i8:
      return store_codes(shape, layer_block, slot, k, v);
  }
}

}  // namespace troupe::kernels::avx512
