// Attention with AVX2. Row tiles of up to 4 query rows share every load of K and V; within a row tile each row goes
// through the same instructions as alone, so row tiles do not change bits. The shape of register blocks depends on the
// number of rows: always 8 chains of fused multiply-adds, enough to hide their latency.
#include <immintrin.h>

#include "kernels/formats/packed_layout.h"
#include "kernels/rows/exp_avx2.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
namespace {

constexpr std::size_t kPositions = kBlockPositions;

// load8: 8 elements.
struct F32 {
  static constexpr std::size_t kBytes = 4;
  static constexpr bool kScaled = false;
  static __m256 load8(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr std::size_t kBytes = 2;
  static constexpr bool kScaled = false;
  static __m256 load8(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct I8 {  // codes; scores and weights are multiplied with the scales
  static constexpr std::size_t kBytes = 1;
  static constexpr bool kScaled = true;
  static __m256 load8(const std::byte* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
};
// Loads the first `count` elements, then zeros.
template <class Kv>
inline __m256 load_some(const std::byte* p, std::size_t count) {
  alignas(32) std::byte copy[32] = {};
  __builtin_memcpy(copy, p, Kv::kBytes * count);
  return Kv::load8(copy);
}

inline void prefetch(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

// Up to 4 query rows over one split. weights [rows][kSplitPositions]: first scores, then the weights of V.
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
};

// weights[r] = unscaled scores of W * 8 positions of a block from `first` on.
template <class Kv, std::size_t R, std::size_t W>
void score_positions(const Tile<Kv>& tile, std::size_t block, std::size_t first, const std::byte* next) {
  __m256 scores[R][W];
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t w = 0; w < W; ++w) scores[r][w] = _mm256_setzero_ps();
  const std::byte* k = tile.split.blocks[block] + tile.k_offset + first * Kv::kBytes;
  next += first * Kv::kBytes;
  for (std::size_t d = 0; d < tile.dim; ++d, k += kPositions * Kv::kBytes, next += kPositions * Kv::kBytes) {
    prefetch(next);
    __m256 x[W];
#pragma GCC unroll 4
    for (std::size_t w = 0; w < W; ++w) x[w] = Kv::load8(k + 8 * w * Kv::kBytes);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
      const __m256 q = _mm256_set1_ps(tile.rows[r].q[d]);
#pragma GCC unroll 4
      for (std::size_t w = 0; w < W; ++w) scores[r][w] = _mm256_fmadd_ps(q, x[w], scores[r][w]);
    }
  }
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t w = 0; w < W; ++w)
      _mm256_store_ps(tile.weights + r * kSplitPositions + block * kPositions + first + 8 * w, scores[r][w]);
}

// Turns scores into weights. Positions that the row does not see, with arbitrary contents, get -infinity and so zero.
template <class Kv>
void weigh_row(const Tile<Kv>& tile, std::size_t r) {
  const AttentionRow& row = tile.rows[r];
  float* weights = tile.weights + r * kSplitPositions;
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff()), scale = _mm256_set1_ps(tile.split.scale);
  const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0),
                count = _mm256_set1_epi32(static_cast<int>(row.num_seen)),
                hidden = _mm256_set1_epi32(static_cast<int>(row.first_seen));
  const float cap = tile.split.soft_cap;
  const std::size_t first = row.first_seen / 8 * 8;
  const auto scales_at = [&](std::size_t p, std::size_t offset) {
    return _mm256_loadu_ps(
        reinterpret_cast<const float*>(tile.split.blocks[p / kPositions] + offset + tile.elements_bytes) +
        p % kPositions);
  };
  __m256 max_lanes = lowest;
  for (std::size_t p = first; p < row.num_seen; p += 8) {
    const __m256i position = _mm256_add_epi32(lane, _mm256_set1_epi32(static_cast<int>(p)));
    const __m256i is_seen =
        _mm256_andnot_si256(_mm256_cmpgt_epi32(hidden, position), _mm256_cmpgt_epi32(count, position));
    const __m256 scales = Kv::kScaled ? _mm256_mul_ps(scales_at(p, tile.k_offset), scale) : scale;
    __m256 scaled = _mm256_mul_ps(_mm256_load_ps(weights + p), scales);
    if (Kv::kScaled && row.offsets) scaled = _mm256_fmadd_ps(_mm256_loadu_ps(row.offsets + p), scale, scaled);
    if (cap != 0.0f)
      scaled = _mm256_mul_ps(_mm256_set1_ps(cap), tanh_avx2(_mm256_mul_ps(scaled, _mm256_set1_ps(1.0f / cap))));
    const __m256 score = _mm256_blendv_ps(lowest, scaled, _mm256_castsi256_ps(is_seen));
    _mm256_store_ps(weights + p, score);
    max_lanes = _mm256_max_ps(score, max_lanes);
  }
  const float max = max_of_lanes(max_lanes);
  __m256 sum = _mm256_setzero_ps();
  for (std::size_t p = first; p < row.num_seen; p += 8) {
    __m256 weight = exp_avx2(_mm256_sub_ps(_mm256_load_ps(weights + p), _mm256_set1_ps(max)));
    sum = _mm256_add_ps(sum, weight);
    if (Kv::kScaled) weight = _mm256_mul_ps(weight, scales_at(p, tile.v_offset));
    _mm256_store_ps(weights + p, weight);
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

// The weighted sums of C vectors of dimensions from d on; `lanes` < 8: one vector with only this many dimensions.
template <class Kv, std::size_t R, std::size_t C>
void add_values(const Tile<Kv>& tile, std::size_t d, std::size_t lanes, std::size_t num_blocks) {
  const auto load = [=](const std::byte* at, std::size_t c) {
    return C == 1 && lanes < 8 ? load_some<Kv>(at, lanes) : Kv::load8(at + 8 * c * Kv::kBytes);
  };
  const std::size_t row_bytes = tile.dim * Kv::kBytes, offset = tile.v_offset + d * Kv::kBytes;
  const Common common = common_positions(tile.rows, R);
  __m256 sums[R][C];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (std::size_t c = 0; c < C; ++c) sums[r][c] = _mm256_setzero_ps();
  // Slots that a row does not see may hold any bits, also NaN: they are not read for this row.
  const auto add_alone = [&](std::size_t r, std::size_t begin, std::size_t end) {
    for (std::size_t p = begin; p < end; ++p) {
      const std::byte* v = tile.split.blocks[p / kPositions] + offset + p % kPositions * row_bytes;
      const __m256 weight = _mm256_set1_ps(tile.weights[r * kSplitPositions + p]);
#pragma GCC unroll 8
      for (std::size_t c = 0; c < C; ++c) sums[r][c] = _mm256_fmadd_ps(weight, load(v, c), sums[r][c]);
    }
  };
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r) add_alone(r, tile.rows[r].first_seen, common.begin);
  for (std::size_t block = common.begin / kPositions; block * kPositions < common.end; ++block) {
    const std::size_t first = block * kPositions;
    const std::size_t begin = first < common.begin ? common.begin : first;
    const std::size_t end = common.end - first < kPositions ? common.end : first + kPositions;
    const std::size_t at = offset + (begin - first) * row_bytes;
    const std::byte* v = tile.split.blocks[block] + at;
    const std::byte* next = tile.split.blocks[block + 1 < num_blocks ? block + 1 : block] + at;
    for (std::size_t p = begin; p < end; ++p, v += row_bytes, next += row_bytes) {
      prefetch(next);
      __m256 weight[R];
#pragma GCC unroll 4
      for (std::size_t r = 0; r < R; ++r) weight[r] = _mm256_set1_ps(tile.weights[r * kSplitPositions + p]);
#pragma GCC unroll 8
      for (std::size_t c = 0; c < C; ++c) {
        const __m256 x = load(v, c);
#pragma GCC unroll 4
        for (std::size_t r = 0; r < R; ++r) sums[r][c] = _mm256_fmadd_ps(weight[r], x, sums[r][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r) {
    const std::size_t first = tile.rows[r].first_seen;
    add_alone(r, first < common.end ? common.end : first, tile.rows[r].num_seen);
#pragma GCC unroll 8
    for (std::size_t c = 0; c < C; ++c) _mm256_store_ps(tile.rows[r].partial + kPartialValues + d + 8 * c, sums[r][c]);
  }
}

template <class Kv, std::size_t R>
void attend_tile(const AttentionSplit& split, std::size_t first_row) {
  constexpr std::size_t kScoreVectors = R == 4 ? 2 : 4, kVectors = 8 / R;
  const Tile<Kv> tile(split, split.rows.data() + first_row);
  std::size_t most = 0, first = kSplitPositions;
  for (std::size_t r = 0; r < R; ++r) {
    most = tile.rows[r].num_seen > most ? tile.rows[r].num_seen : most;
    first = tile.rows[r].first_seen < first ? tile.rows[r].first_seen : first;
  }
  const std::size_t num_blocks = (most + kPositions - 1) / kPositions, first_block = first / kPositions;
  for (std::size_t block = first_block; block < num_blocks; ++block) {
    // After the last K block, prefetch the first V block.
    const std::byte* next =
        block + 1 < num_blocks ? split.blocks[block + 1] + tile.k_offset : split.blocks[first_block] + tile.v_offset;
    for (std::size_t p = 0; p < kPositions; p += 8 * kScoreVectors)
      score_positions<Kv, R, kScoreVectors>(tile, block, p, next);
  }
  for (std::size_t r = 0; r < R; ++r) weigh_row<Kv>(tile, r);
  std::size_t d = 0;
  for (; d + 8 * kVectors <= tile.dim; d += 8 * kVectors) add_values<Kv, R, kVectors>(tile, d, 8, num_blocks);
  for (; d < tile.dim; d += 8) add_values<Kv, R, 1>(tile, d, tile.dim - d, num_blocks);
  const std::size_t padded = (tile.dim + 15) / 16 * 16;
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t at = (tile.dim + 7) / 8 * 8; at < padded; ++at) tile.rows[r].partial[kPartialValues + at] = 0.0f;
}

template <class Kv>
void attend(const AttentionSplit& split) {
  const std::size_t num_rows = split.rows.size();
  std::size_t row = 0;
  for (; row + 4 <= num_rows; row += 4) attend_tile<Kv, 4>(split, row);
  if (num_rows - row >= 2) {
    attend_tile<Kv, 2>(split, row);
    row += 2;
  }
  if (num_rows - row == 1) attend_tile<Kv, 1>(split, row);
}

// N blocks of score_offsets.
template <std::size_t N>
void offsets_of_blocks(const float* q, const float* part, std::size_t dim, float* out) {
  for (std::size_t first = 0; first < kPositions; first += 16) {
    __m256 sums[N][2];
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) sums[n][0] = sums[n][1] = _mm256_setzero_ps();
    const float* from = part + first;
    for (std::size_t d = 0; d < dim; ++d, from += kPositions) {
      const __m256 low = _mm256_loadu_ps(from), high = _mm256_loadu_ps(from + 8);
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        const __m256 x = _mm256_set1_ps(q[n * dim + d]);
        sums[n][0] = _mm256_fmadd_ps(x, low, sums[n][0]);
        sums[n][1] = _mm256_fmadd_ps(x, high, sums[n][1]);
      }
    }
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) {
      _mm256_storeu_ps(out + n * kPositions + first, sums[n][0]);
      _mm256_storeu_ps(out + n * kPositions + first + 8, sums[n][1]);
    }
  }
}

}  // namespace

void score_offsets(const float* q, const float* part, std::size_t head_dim, std::size_t num_blocks, float* out) {
  std::size_t block = 0;
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
  const __m128 first = _mm256_castps256_ps128(exp_avx2(_mm256_zextps128_ps256(below)));
  const __m128 second = _mm_movehdup_ps(first);
  const __m256 a = _mm256_broadcastss_ps(first), b = _mm256_broadcastss_ps(second);
  total[0] = max;
  total[1] = total[1] * _mm_cvtss_f32(first) + partial[1] * _mm_cvtss_f32(second);
  for (std::size_t i = kPartialValues; i < kPartialValues + head_dim; i += 8)
    _mm256_store_ps(total + i,
                    _mm256_fmadd_ps(_mm256_load_ps(total + i), a, _mm256_mul_ps(_mm256_load_ps(partial + i), b)));
}

void finish_attention(const float* total, std::size_t head_dim, float* out) {
  for (std::size_t d = 0; d < head_dim; ++d) out[d] = total[kPartialValues + d] / total[1];
}

namespace {

// Stores 8 elements in column `slot` of a K part.
template <class T>
inline void put_column(const T* elements, T* column) {
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i) column[i * kPositions] = elements[i];
}

// head_dim is a multiple of 8, here and below.
void store_halves(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim;
  const __m256 most = _mm256_set1_ps(65504.0f), least = _mm256_set1_ps(-65504.0f);
  const auto halves = [&](const float* x) {  // NaN in the first operand: the second
    return _mm256_cvtps_ph(_mm256_min_ps(_mm256_max_ps(_mm256_loadu_ps(x), least), most),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  };
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head, k += dim, v += dim) {
    auto* k_head = reinterpret_cast<std::uint16_t*>(layer_block + head * shape.head_bytes()) + slot;
    auto* v_row =
        reinterpret_cast<std::uint16_t*>(layer_block + shape.v_offset() + head * shape.head_bytes()) + slot * dim;
    for (std::size_t d = 0; d < dim; d += 8) {
      alignas(16) std::uint16_t column[8];
      _mm_store_si128(reinterpret_cast<__m128i*>(column), halves(k + d));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(v_row + d), halves(v + d));
      put_column(column, k_head + d * kPositions);
    }
  }
}

// One head's scale, and the factor from its values to codes.
struct Scale {
  float scale;
  __m256 inverse;
};
Scale scale_of(const float* x, std::size_t dim) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 max = _mm256_setzero_ps();
  for (std::size_t d = 0; d < dim; d += 8)  // NaN in the first operand: keeps the second
    max = _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + d)), max);
  float largest = max_of_lanes(max);
  largest = largest < 1e38f ? largest : 1e38f;  // keeps 127 times the scale finite
  const bool usual = largest > layout::kSmallestMax;
  return {usual ? largest / 127.0f : 0.0f, _mm256_set1_ps(usual ? 127.0f / largest : 0.0f)};
}
// 8 codes in the low half.
__m128i codes_of(const float* x, __m256 inverse) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
  const __m256 limited = _mm256_min_ps(_mm256_max_ps(scaled, _mm256_set1_ps(-127.0f)), _mm256_set1_ps(127.0f));
  const __m256i wide = _mm256_cvtps_epi32(limited);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  return _mm_packs_epi16(words, words);
}

void store_codes(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim;
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head, k += dim, v += dim) {
    std::byte* k_head = layer_block + head * shape.head_bytes();
    std::byte* v_head = k_head + shape.v_offset();
    const Scale k_scale = scale_of(k, dim), v_scale = scale_of(v, dim);
    reinterpret_cast<float*>(k_head + shape.elements_bytes())[slot] = k_scale.scale;
    reinterpret_cast<float*>(v_head + shape.elements_bytes())[slot] = v_scale.scale;
    for (std::size_t d = 0; d < dim; d += 8) {
      alignas(16) std::byte column[16];
      _mm_store_si128(reinterpret_cast<__m128i*>(column), codes_of(k + d, k_scale.inverse));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(v_head + slot * dim + d), codes_of(v + d, v_scale.inverse));
      put_column(column, k_head + d * kPositions + slot);
    }
  }
}

}  // namespace

void store_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  // f32 (for comparisons only) needs one store per element of K with or without vectors.
  if (shape.type == KvType::f32 || shape.head_dim % 8 != 0) return scalar::store_kv(shape, layer_block, slot, k, v);
  return shape.type == KvType::f16 ? store_halves(shape, layer_block, slot, k, v)
                                   : store_codes(shape, layer_block, slot, k, v);
}

}  // namespace troupe::kernels::avx2
