// Attention with AVX2. Tiles of up to 4 query rows share every load of K and V; within a tile each row
// goes through the instructions it would go through alone, so tiles do not change bits. Register
// blocks are shaped by the tile: always 8 chains of fused multiply-adds, enough to hide their latency.
#include <immintrin.h>

#include "kernels/exp_avx2.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx2 {
namespace {

constexpr std::size_t kPositions = 32;  // in a block
constexpr std::size_t kMaxRows = 4;

inline float max_of_lanes(__m256 x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline float sum_of_lanes(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// 8 elements; the second form only the first `count` and zeros.
struct F16 {
  static constexpr std::size_t kBytes = 2;
  static __m256 load8(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __m256 load8(const std::byte* p, std::size_t count) {
    alignas(16) std::byte copy[16] = {};
    __builtin_memcpy(copy, p, kBytes * count);
    return load8(copy);
  }
};
struct F32 {
  static constexpr std::size_t kBytes = 4;
  static __m256 load8(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
  static __m256 load8(const std::byte* p, std::size_t count) {
    alignas(32) std::byte copy[32] = {};
    __builtin_memcpy(copy, p, kBytes * count);
    return load8(copy);
  }
};

// A tile's rows: where they are, and their softmax-weighted sums so far. max, sum and values are one
// split's partial, the totals all splits' merged; values [rows][padded_dim].
struct Tile {
  const float* q[kMaxRows];
  float* out[kMaxRows];
  std::size_t limit[kMaxRows];  // positions the row sees
  alignas(32) float max[8], total_max[8], shrink[8];
  alignas(32) float weights[kMaxRows][kPositions];  // scores, then exp(score - max)
  __m256 sum[kMaxRows];                             // per lane
  float total_sum[kMaxRows];
  float* values;
  float* total_values;
  std::size_t padded_dim;
};

inline std::size_t seen_in_block(std::size_t limit, std::size_t block) {
  const std::size_t begin = block * kPositions;
  if (limit <= begin) return 0;
  return limit - begin < kPositions ? limit - begin : kPositions;
}

// weights[r] = scores before scaling, of W * 8 positions from `first` on.
template <class Kv, std::size_t R, std::size_t W>
void score_positions(std::size_t dim, const std::byte* k, std::size_t first, Tile& tile) {
  __m256 scores[R][W];
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t w = 0; w < W; ++w) scores[r][w] = _mm256_setzero_ps();
  k += first * Kv::kBytes;
  for (std::size_t d = 0; d < dim; ++d, k += kPositions * Kv::kBytes) {
    __m256 x[W];
#pragma GCC unroll 4
    for (std::size_t w = 0; w < W; ++w) x[w] = Kv::load8(k + 8 * w * Kv::kBytes);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
      const __m256 q = _mm256_set1_ps(tile.q[r][d]);
#pragma GCC unroll 4
      for (std::size_t w = 0; w < W; ++w) scores[r][w] = _mm256_fmadd_ps(q, x[w], scores[r][w]);
    }
  }
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t w = 0; w < W; ++w) _mm256_store_ps(tile.weights[r] + first + 8 * w, scores[r][w]);
}

// Scales the scores; positions that the row does not see, which may be anything, become -infinity.
// Returns the largest.
inline float scale_scores(float scale, std::size_t seen, float* scores) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), count = _mm256_set1_epi32(static_cast<int>(seen));
  __m256 max = lowest;
  for (int p = 0; p < static_cast<int>(kPositions); p += 8) {
    const __m256i is_seen = _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(p)));
    const __m256 scaled = _mm256_mul_ps(_mm256_load_ps(scores + p), _mm256_set1_ps(scale));
    const __m256 masked = _mm256_blendv_ps(lowest, scaled, _mm256_castsi256_ps(is_seen));
    _mm256_store_ps(scores + p, masked);
    max = _mm256_max_ps(masked, max);
  }
  return max_of_lanes(max);
}

// weights[r] = exp(score - max) for the positions a row sees, 0 beyond; updates max, sum and shrink.
template <class Kv, std::size_t R>
void score_block(const AttentionArgs& args, const std::byte* k, const std::size_t (&seen)[kMaxRows], Tile& tile) {
  constexpr std::size_t kVectors = R == 4 ? 2 : 4;
  for (std::size_t p = 0; p < kPositions; p += 8 * kVectors)
    score_positions<Kv, R, kVectors>(args.shape.head_dim, k, p, tile);
  alignas(32) float new_max[8] = {};
  for (std::size_t r = 0; r < R; ++r) {
    const float max = scale_scores(args.scale, seen[r], tile.weights[r]);
    new_max[r] = max > tile.max[r] ? max : tile.max[r];
  }
  const __m256 fresh = _mm256_load_ps(new_max);
  _mm256_store_ps(tile.shrink, exp_avx2(_mm256_sub_ps(_mm256_load_ps(tile.max), fresh)));
  _mm256_store_ps(tile.max, fresh);
  for (std::size_t r = 0; r < R; ++r) {
    if (seen[r] == 0) continue;
    __m256 e[4];
    for (std::size_t w = 0; w < 4; ++w) {
      e[w] = exp_avx2(_mm256_sub_ps(_mm256_load_ps(tile.weights[r] + 8 * w), _mm256_set1_ps(new_max[r])));
      _mm256_store_ps(tile.weights[r] + 8 * w, e[w]);
    }
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(e[0], e[1]), _mm256_add_ps(e[2], e[3]));
    tile.sum[r] = _mm256_fmadd_ps(tile.sum[r], _mm256_set1_ps(tile.shrink[r]), sum);
  }
}

// values[r][d..] = values * shrink + weighted V, for C vectors of dimensions from d on; `lanes` < 8: one
// vector, of which only so many are there.
template <class Kv, std::size_t R, std::size_t C>
void add_values(const std::byte* v, std::size_t row_bytes, std::size_t d, std::size_t lanes,
                const std::size_t (&seen)[kMaxRows], Tile& tile) {
  const auto load = [=](std::size_t p, std::size_t c) {
    const std::byte* at = v + p * row_bytes + (d + 8 * c) * Kv::kBytes;
    return C == 1 && lanes < 8 ? Kv::load8(at, lanes) : Kv::load8(at);
  };
  std::size_t common = kPositions;
  for (std::size_t r = 0; r < R; ++r) common = seen[r] < common ? seen[r] : common;
  __m256 sums[R][C];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (std::size_t c = 0; c < C; ++c)
      sums[r][c] =
          _mm256_mul_ps(_mm256_load_ps(tile.values + r * tile.padded_dim + d + 8 * c), _mm256_set1_ps(tile.shrink[r]));
  for (std::size_t p = 0; p < common; ++p) {
    __m256 weight[R];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) weight[r] = _mm256_set1_ps(tile.weights[r][p]);
#pragma GCC unroll 8
    for (std::size_t c = 0; c < C; ++c) {
      const __m256 x = load(p, c);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < R; ++r) sums[r][c] = _mm256_fmadd_ps(weight[r], x, sums[r][c]);
    }
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r) {
    if (seen[r] == 0) continue;
    // Slots that a row does not see may hold anything, also NaN: they are not read for it.
    for (std::size_t p = common; p < seen[r]; ++p)
#pragma GCC unroll 8
      for (std::size_t c = 0; c < C; ++c)
        sums[r][c] = _mm256_fmadd_ps(_mm256_set1_ps(tile.weights[r][p]), load(p, c), sums[r][c]);
#pragma GCC unroll 8
    for (std::size_t c = 0; c < C; ++c) _mm256_store_ps(tile.values + r * tile.padded_dim + d + 8 * c, sums[r][c]);
  }
}

template <class Kv, std::size_t R>
void attend_block(const AttentionArgs& args, std::size_t block, Tile& tile) {
  constexpr std::size_t kVectors = 8 / R;
  const std::size_t dim = args.shape.head_dim, head_bytes = dim * kPositions * Kv::kBytes;
  const std::byte* k = args.blocks[block] + args.kv_head * head_bytes;
  const std::byte* v = k + args.shape.num_kv_heads * head_bytes;
  std::size_t seen[kMaxRows] = {};
  for (std::size_t r = 0; r < R; ++r) seen[r] = seen_in_block(tile.limit[r], block);
  score_block<Kv, R>(args, k, seen, tile);
  std::size_t d = 0;
  for (; d + 8 * kVectors <= dim; d += 8 * kVectors) add_values<Kv, R, kVectors>(v, dim * Kv::kBytes, d, 8, seen, tile);
  for (; d < dim; d += 8) add_values<Kv, R, 1>(v, dim * Kv::kBytes, d, dim - d, seen, tile);
}

// total += partial, for the rows that saw anything of this split.
template <std::size_t R>
void merge_split(Tile& tile) {
  alignas(32) float old_factor[8], new_factor[8];
  const __m256 split_max = _mm256_load_ps(tile.max), total_max = _mm256_load_ps(tile.total_max);
  const __m256 max = _mm256_max_ps(split_max, total_max);
  _mm256_store_ps(old_factor, exp_avx2(_mm256_sub_ps(total_max, max)));
  _mm256_store_ps(new_factor, exp_avx2(_mm256_sub_ps(split_max, max)));
  for (std::size_t r = 0; r < R; ++r) {
    if (tile.max[r] == -__builtin_inff()) continue;
    const __m256 a = _mm256_set1_ps(old_factor[r]), b = _mm256_set1_ps(new_factor[r]);
    tile.total_sum[r] = tile.total_sum[r] * old_factor[r] + sum_of_lanes(tile.sum[r]) * new_factor[r];
    float* total = tile.total_values + r * tile.padded_dim;
    const float* split = tile.values + r * tile.padded_dim;
    for (std::size_t d = 0; d < tile.padded_dim; d += 8)
      _mm256_store_ps(total + d,
                      _mm256_fmadd_ps(_mm256_load_ps(total + d), a, _mm256_mul_ps(_mm256_load_ps(split + d), b)));
  }
  _mm256_store_ps(tile.total_max, max);
}

template <std::size_t R>
void open_tile(const AttentionArgs& args, std::size_t first_row, Tile& tile) {
  const std::size_t dim = args.shape.head_dim;
  tile.padded_dim = (dim + 7) / 8 * 8;
  tile.values = args.scratch;
  tile.total_values = args.scratch + R * tile.padded_dim;
  for (std::size_t r = 0; r < R; ++r) {
    const std::size_t t = (first_row + r) / args.group, g = (first_row + r) % args.group;
    tile.q[r] = args.q + t * args.token_stride + g * dim;
    tile.out[r] = args.out + t * args.token_stride + g * dim;
    tile.limit[r] = args.first_position + t + 1;
    tile.total_sum[r] = 0.0f;
  }
  for (std::size_t i = 0; i < R * tile.padded_dim; i += 8) _mm256_store_ps(tile.total_values + i, _mm256_setzero_ps());
  _mm256_store_ps(tile.total_max, _mm256_set1_ps(-__builtin_inff()));
}

template <class Kv, std::size_t R>
void attend_tile(const AttentionArgs& args, std::size_t first_row) {
  Tile tile;
  open_tile<R>(args, first_row, tile);
  const std::size_t num_blocks = (tile.limit[R - 1] + kPositions - 1) / kPositions;
  for (std::size_t split = 0; split < num_blocks; split += kSplitBlocks) {
    _mm256_store_ps(tile.max, _mm256_set1_ps(-__builtin_inff()));
    for (std::size_t r = 0; r < R; ++r) tile.sum[r] = _mm256_setzero_ps();
    for (std::size_t i = 0; i < R * tile.padded_dim; i += 8) _mm256_store_ps(tile.values + i, _mm256_setzero_ps());
    const std::size_t end = split + kSplitBlocks < num_blocks ? split + kSplitBlocks : num_blocks;
    for (std::size_t block = split; block < end; ++block) attend_block<Kv, R>(args, block, tile);
    merge_split<R>(tile);
  }
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t d = 0; d < args.shape.head_dim; ++d)
      tile.out[r][d] = tile.total_values[r * tile.padded_dim + d] / tile.total_sum[r];
}

template <class Kv>
void attend(const AttentionArgs& args) {
  const std::size_t num_rows = std::size_t{args.num_tokens} * args.group;
  std::size_t row = 0;
  for (; row + 4 <= num_rows; row += 4) attend_tile<Kv, 4>(args, row);
  if (num_rows - row >= 2) {
    attend_tile<Kv, 2>(args, row);
    row += 2;
  }
  if (num_rows - row == 1) attend_tile<Kv, 1>(args, row);
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.shape.type == KvType::f16)
    attend<F16>(args);
  else
    attend<F32>(args);
}

void store_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim;
  if (shape.type == KvType::f32 || dim % 8 != 0) return scalar::store_kv(shape, layer_block, slot, k, v);
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const std::size_t head_bytes = dim * kPositions * 2;
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head, k += dim, v += dim) {
    auto* k_head = reinterpret_cast<std::uint16_t*>(layer_block + head * head_bytes) + slot;
    auto* v_row = reinterpret_cast<std::uint16_t*>(layer_block + (shape.num_kv_heads + head) * head_bytes) + slot * dim;
    for (std::size_t d = 0; d < dim; d += 8) {
      alignas(16) std::uint16_t column[8];
      _mm_store_si128(reinterpret_cast<__m128i*>(column), _mm256_cvtps_ph(_mm256_loadu_ps(k + d), kRounding));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(v_row + d), _mm256_cvtps_ph(_mm256_loadu_ps(v + d), kRounding));
      for (std::size_t i = 0; i < 8; ++i) k_head[(d + i) * kPositions] = column[i];
    }
  }
}

}  // namespace troupe::kernels::avx2
