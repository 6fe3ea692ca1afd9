// Attention with AVX-512. Tiles of up to 8 query rows share every load of K and V; within a tile each
// row goes through the instructions it would go through alone, so tiles do not change bits.
#include <immintrin.h>

#include "kernels/exp_avx512.h"
#include "kernels/variants.h"

namespace troupe::kernels::avx512vnni {
namespace {

constexpr std::size_t kPositions = 32;  // in a block
constexpr std::size_t kMaxRows = 8;

inline __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

inline float sum_of_lanes(__m512 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

struct F16 {
  static constexpr std::size_t kBytes = 2;
  static __m512 load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m512 load(const std::byte* p, __mmask16 mask) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p)); }
};
struct F32 {
  static constexpr std::size_t kBytes = 4;
  static __m512 load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static __m512 load(const std::byte* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
};

// A tile's rows: where they are, and their softmax-weighted sums so far. A partial is one split's, `total`
// all splits' merged; values [rows][padded head_dim].
struct Tile {
  const float* q[kMaxRows];
  float* out[kMaxRows];
  std::size_t limit[kMaxRows];  // positions the row sees
  alignas(64) float max[16], total_max[16], shrink[16];
  alignas(64) float weights[kMaxRows][kPositions];
  __m512 sum[kMaxRows];  // per lane
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

// weights[r] = exp(score - max) for the positions a row sees, 0 beyond; updates max, sum and shrink.
template <class Kv, std::size_t R>
void score_block(const AttentionArgs& args, const std::byte* k, const std::size_t (&seen)[kMaxRows], Tile& tile) {
  __m512 scores[R][2];
  for (std::size_t r = 0; r < R; ++r) scores[r][0] = scores[r][1] = _mm512_setzero_ps();
  const std::size_t dim = args.shape.head_dim;
  for (std::size_t d = 0; d < dim; ++d, k += kPositions * Kv::kBytes) {
    const __m512 low = Kv::load(k), high = Kv::load(k + 16 * Kv::kBytes);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r) {
      const __m512 q = _mm512_set1_ps(tile.q[r][d]);
      scores[r][0] = _mm512_fmadd_ps(q, low, scores[r][0]);
      scores[r][1] = _mm512_fmadd_ps(q, high, scores[r][1]);
    }
  }
  const __m512 scale = _mm512_set1_ps(args.scale), lowest = _mm512_set1_ps(-__builtin_inff());
  alignas(64) float new_max[16] = {};
  for (std::size_t r = 0; r < R; ++r) {
    const __mmask16 low = first_lanes(seen[r]), high = first_lanes(seen[r] > 16 ? seen[r] - 16 : 0);
    scores[r][0] = _mm512_mask_mul_ps(lowest, low, scores[r][0], scale);
    scores[r][1] = _mm512_mask_mul_ps(lowest, high, scores[r][1], scale);
    const float max = _mm512_reduce_max_ps(_mm512_max_ps(scores[r][0], scores[r][1]));
    new_max[r] = max > tile.max[r] ? max : tile.max[r];
  }
  const __m512 fresh = _mm512_load_ps(new_max);
  _mm512_store_ps(tile.shrink, exp_avx512(_mm512_sub_ps(_mm512_load_ps(tile.max), fresh)));
  _mm512_store_ps(tile.max, fresh);
  for (std::size_t r = 0; r < R; ++r) {
    if (seen[r] == 0) continue;
    const __m512 max = _mm512_set1_ps(new_max[r]);
    const __m512 low = exp_avx512(_mm512_sub_ps(scores[r][0], max));
    const __m512 high = exp_avx512(_mm512_sub_ps(scores[r][1], max));
    _mm512_store_ps(tile.weights[r], low);
    _mm512_store_ps(tile.weights[r] + 16, high);
    tile.sum[r] = _mm512_fmadd_ps(tile.sum[r], _mm512_set1_ps(tile.shrink[r]), _mm512_add_ps(low, high));
  }
}

// values[r][d..] = values * shrink + weighted V, for C vectors of dimensions from d on.
template <class Kv, std::size_t R, std::size_t C>
void add_values(const std::byte* v, std::size_t row_bytes, std::size_t d, __mmask16 mask,
                const std::size_t (&seen)[kMaxRows], Tile& tile) {
  std::size_t common = kPositions;
  for (std::size_t r = 0; r < R; ++r) common = seen[r] < common ? seen[r] : common;
  __m512 sums[R][C];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (std::size_t c = 0; c < C; ++c)
      sums[r][c] =
          _mm512_mul_ps(_mm512_load_ps(tile.values + r * tile.padded_dim + d + 16 * c), _mm512_set1_ps(tile.shrink[r]));
  for (std::size_t p = 0; p < common; ++p) {
    __m512 x[C];
#pragma GCC unroll 2
    for (std::size_t c = 0; c < C; ++c)
      x[c] = Kv::load(v + p * row_bytes + (d + 16 * c) * Kv::kBytes, c + 1 == C ? mask : __mmask16{0xffff});
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r) {
      const __m512 weight = _mm512_set1_ps(tile.weights[r][p]);
#pragma GCC unroll 2
      for (std::size_t c = 0; c < C; ++c) sums[r][c] = _mm512_fmadd_ps(weight, x[c], sums[r][c]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r) {
    // Slots that this row does not see may hold anything, also NaN: they are not read for it.
    for (std::size_t p = common; p < seen[r]; ++p)
      for (std::size_t c = 0; c < C; ++c)
        sums[r][c] = _mm512_fmadd_ps(
            _mm512_set1_ps(tile.weights[r][p]),
            Kv::load(v + p * row_bytes + (d + 16 * c) * Kv::kBytes, c + 1 == C ? mask : __mmask16{0xffff}), sums[r][c]);
    if (seen[r] == 0) continue;
    for (std::size_t c = 0; c < C; ++c) _mm512_store_ps(tile.values + r * tile.padded_dim + d + 16 * c, sums[r][c]);
  }
}

template <class Kv, std::size_t R>
void attend_block(const AttentionArgs& args, std::size_t block, Tile& tile) {
  const std::size_t dim = args.shape.head_dim, head_bytes = dim * kPositions * Kv::kBytes;
  const std::byte* k = args.blocks[block] + args.kv_head * head_bytes;
  const std::byte* v = k + args.shape.num_kv_heads * head_bytes;
  std::size_t seen[kMaxRows] = {};
  for (std::size_t r = 0; r < R; ++r) seen[r] = seen_in_block(tile.limit[r], block);
  score_block<Kv, R>(args, k, seen, tile);
  std::size_t d = 0;
  for (; d + 32 <= dim; d += 32) add_values<Kv, R, 2>(v, dim * Kv::kBytes, d, 0xffff, seen, tile);
  for (; d < dim; d += 16) add_values<Kv, R, 1>(v, dim * Kv::kBytes, d, first_lanes(dim - d), seen, tile);
}

// total += partial, for the rows that saw anything of this split.
template <std::size_t R>
void merge_split(Tile& tile) {
  alignas(64) float old_factor[16], new_factor[16];
  const __m512 split_max = _mm512_load_ps(tile.max), total_max = _mm512_load_ps(tile.total_max);
  const __m512 max = _mm512_max_ps(split_max, total_max);
  _mm512_store_ps(old_factor, exp_avx512(_mm512_sub_ps(total_max, max)));
  _mm512_store_ps(new_factor, exp_avx512(_mm512_sub_ps(split_max, max)));
  for (std::size_t r = 0; r < R; ++r) {
    if (tile.max[r] == -__builtin_inff()) continue;
    const __m512 a = _mm512_set1_ps(old_factor[r]), b = _mm512_set1_ps(new_factor[r]);
    tile.total_sum[r] = tile.total_sum[r] * old_factor[r] + sum_of_lanes(tile.sum[r]) * new_factor[r];
    float* total = tile.total_values + r * tile.padded_dim;
    const float* split = tile.values + r * tile.padded_dim;
    for (std::size_t d = 0; d < tile.padded_dim; d += 16)
      _mm512_store_ps(total + d,
                      _mm512_fmadd_ps(_mm512_load_ps(total + d), a, _mm512_mul_ps(_mm512_load_ps(split + d), b)));
  }
  _mm512_store_ps(tile.total_max, max);
}

template <class Kv, std::size_t R>
void attend_tile(const AttentionArgs& args, std::size_t first_row) {
  const std::size_t dim = args.shape.head_dim;
  Tile tile;
  tile.padded_dim = (dim + 15) / 16 * 16;
  tile.values = args.scratch;
  tile.total_values = args.scratch + R * tile.padded_dim;
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff()), zero = _mm512_setzero_ps();
  for (std::size_t r = 0; r < R; ++r) {
    const std::size_t t = (first_row + r) / args.group, g = (first_row + r) % args.group;
    tile.q[r] = args.q + t * args.token_stride + g * dim;
    tile.out[r] = args.out + t * args.token_stride + g * dim;
    tile.limit[r] = args.first_position + t + 1;
    tile.total_sum[r] = 0.0f;
    for (std::size_t d = 0; d < tile.padded_dim; d += 16)
      _mm512_store_ps(tile.total_values + r * tile.padded_dim + d, zero);
  }
  _mm512_store_ps(tile.total_max, lowest);
  const std::size_t num_blocks = (tile.limit[R - 1] + kPositions - 1) / kPositions;
  for (std::size_t split = 0; split < num_blocks; split += kSplitBlocks) {
    _mm512_store_ps(tile.max, lowest);
    for (std::size_t r = 0; r < R; ++r) tile.sum[r] = zero;
    for (std::size_t i = 0; i < R * tile.padded_dim; i += 16) _mm512_store_ps(tile.values + i, zero);
    const std::size_t end = split + kSplitBlocks < num_blocks ? split + kSplitBlocks : num_blocks;
    for (std::size_t block = split; block < end; ++block) attend_block<Kv, R>(args, block, tile);
    merge_split<R>(tile);
  }
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t d = 0; d < dim; d += 16) {
      const __m512 values = _mm512_load_ps(tile.total_values + r * tile.padded_dim + d);
      _mm512_mask_storeu_ps(tile.out[r] + d, first_lanes(dim - d),
                            _mm512_div_ps(values, _mm512_set1_ps(tile.total_sum[r])));
    }
}

template <class Kv>
void attend(const AttentionArgs& args) {
  const std::size_t num_rows = std::size_t{args.num_tokens} * args.group;
  std::size_t row = 0;
  for (; row + 8 <= num_rows; row += 8) attend_tile<Kv, 8>(args, row);
  if (num_rows - row >= 4) {
    attend_tile<Kv, 4>(args, row);
    row += 4;
  }
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
  if (shape.type == KvType::f32) return scalar::store_kv(shape, layer_block, slot, k, v);
  const std::size_t head_bytes = dim * kPositions * 2;
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head) {
    auto* k_head = reinterpret_cast<std::uint16_t*>(layer_block + head * head_bytes) + slot;
    auto* v_row = reinterpret_cast<std::uint16_t*>(layer_block + (shape.num_kv_heads + head) * head_bytes) + slot * dim;
    for (std::size_t d = 0; d < dim; d += 16) {
      const __mmask16 mask = first_lanes(dim - d);
      alignas(32) std::uint16_t column[16];
      const __m512 k_values = _mm512_maskz_loadu_ps(mask, k + head * dim + d);
      const __m512 v_values = _mm512_maskz_loadu_ps(mask, v + head * dim + d);
      _mm256_store_si256(reinterpret_cast<__m256i*>(column),
                         _mm512_cvtps_ph(k_values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
      _mm256_mask_storeu_epi16(v_row + d, mask,
                               _mm512_cvtps_ph(v_values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
      for (std::size_t i = 0; i < 16 && d + i < dim; ++i) k_head[(d + i) * kPositions] = column[i];
    }
  }
}

}  // namespace troupe::kernels::avx512vnni
