// Attention on AMX: scores and weighted sums as products of bfloat16 tiles.
//
// Query rows are the left operand, 16 to a tile. K and V, expanded from their packed form one block at a time, are the
// right operand; the layout of a block needs no transposition. Two passes over a split: the scores of its 8 blocks;
// then, once a row's largest score is known, the weighted sums, which stay in tiles for the whole split.
//
// To keep accuracy, a value is split into two bfloat16, high and low part, and the products high x high, low x high and
// high x low are all added. Queries and weights are rounded that way (to 16 bits or more). A half is exactly two parts,
// and an int8 code exactly one, so K and V are exact; the scales of int8 are multiplied with scores and weights in
// float32.
//
// A single row goes through the same tile products as 32: a tile's rows do not affect each other, and blocks that only
// other rows see have weights of zero, which add nothing. All groups of a call begin at the first block that any row
// sees.
#include <immintrin.h>

#include "kernels/cpu/tiles_amx.h"
#include "kernels/rows/exp_avx512.h"
#include "kernels/variants.h"

namespace troupe::kernels::amx {
namespace {

constexpr std::size_t kPositions = kBlockPositions;
constexpr std::size_t kLine = 64, kTile = 1024, kTileRows = 16, kGroupRows = 32;
constexpr std::size_t kAhead = 2;  // blocks to prefetch before they are expanded
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr std::size_t kScoreBytes = kSplitPositions * sizeof(float);  // per row

// Tiles 0..3 hold sums (two tiles of rows by two of columns), 4 and 5 right operands, 6 and 7 left operands (rows).
const TileConfig kConfig;

TROUPE_INLINE __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}
TROUPE_INLINE __mmask16 lanes_below(std::size_t begin, std::size_t end) {
  return end > begin ? first_lanes(end - begin) : __mmask16{0};
}
TROUPE_INLINE float sum_of_lanes(__m512 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TROUPE_INLINE void prefetch(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

struct F16 {
  static constexpr std::size_t kBytes = 2, kPlanes = 2;
  static constexpr bool kScaled = false;
  TROUPE_INLINE static __m512 load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  TROUPE_INLINE static __m512 load(const std::byte* p, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
  }
};
struct I8 {
  static constexpr std::size_t kBytes = 1, kPlanes = 1;
  static constexpr bool kScaled = true;
  TROUPE_INLINE static __m512 of(__m128i codes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)); }
  TROUPE_INLINE static __m512 load(const std::byte* p) {
    return of(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  TROUPE_INLINE static __m512 load(const std::byte* p, __mmask16 mask) { return of(_mm_maskz_loadu_epi8(mask, p)); }
};

// 2^t for t <= 0, also -infinity. The polynomial for the fraction f is the best of degree 5 with p(0) = 1: within
// 8.3e-8 of 2^f.
TROUPE_INLINE __m512 exp2_weights(__m512 t) {
  const __m512 f = _mm512_reduce_ps(t, 0x09);  // t - floor(t)
  __m512 p = _mm512_set1_ps(1.867130072e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.017030316e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.579991311e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.401644502e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931513118e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, t);  // by floor(t)
}

// Truncates to bfloat16: even[j] to word 2j, odd[j] to word 2j + 1. 0xea is (a & b) | c.
TROUPE_INLINE __m512i cut_off_pairs(__m512i even, __m512i odd) {
  return _mm512_ternarylogic_epi32(odd, _mm512_set1_epi32(static_cast<int>(0xffff0000u)), _mm512_srli_epi32(even, 16),
                                   0xea);
}
// Writes one line of a tile, and with two planes the truncation's remainder to the same line of the next tile. `round`:
// the remainder is rounded to nearest (not needed for a half, whose remainder is exact).
template <std::size_t planes, bool round>
TROUPE_INLINE void store_pairs(__m512 even, __m512 odd, std::byte* line) {
  _mm512_store_si512(line, cut_off_pairs(_mm512_castps_si512(even), _mm512_castps_si512(odd)));
  if (planes == 1) return;
  const __m512 high_part = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  __m512i even_rest = _mm512_castps_si512(_mm512_sub_ps(even, _mm512_and_ps(even, high_part)));
  __m512i odd_rest = _mm512_castps_si512(_mm512_sub_ps(odd, _mm512_and_ps(odd, high_part)));
  if (round) {
    even_rest = _mm512_add_epi32(even_rest, _mm512_set1_epi32(0x8000));
    odd_rest = _mm512_add_epi32(odd_rest, _mm512_set1_epi32(0x8000));
  }
  _mm512_store_si512(line + kTile, cut_off_pairs(even_rest, odd_rest));
}

// The scratch space of a call. With one group of 32 rows K and V are used once: two buffers in the first-level cache
// alternate, so that one block is expanded while the one before is multiplied. With several groups the whole split
// stays expanded.
template <class Kv>
struct Work {
  explicit Work(const AttentionSplit& of) : split(of) {
    const KvShape& shape = of.shape;
    dim = shape.head_dim;
    steps = (dim + 31) / 32;
    elements_bytes = dim * kPositions * Kv::kBytes;
    k_offset = of.kv_head * shape.head_bytes();
    v_offset = k_offset + shape.v_offset();
    std::size_t first_seen = kSplitPositions;
    for (const AttentionRow& row : of.rows) first_seen = row.first_seen < first_seen ? row.first_seen : first_seen;
    first_block = first_seen / kPositions;
    buffers = of.rows.size() <= kGroupRows ? 2 : kSplitBlocks;
    k_bytes = 2 * steps * Kv::kPlanes * kTile;
    v_bytes = 2 * Kv::kPlanes * kTile;
    queries = of.scratch;
    weights = queries + 4 * steps * kTile;
    scores = reinterpret_cast<float*>(weights + 4 * kSplitBlocks * kTile);
    sums = reinterpret_cast<std::byte*>(scores) + kGroupRows * kScoreBytes;
    keys = sums + 4 * kTile;
    values = keys + kSplitBlocks * 4 * steps * kTile;
  }
  std::byte* keys_of(std::size_t block) const { return keys + block % buffers * k_bytes; }
  // Two tiles of values of the dimensions from 32 * step on.
  std::byte* values_of(std::size_t block, std::size_t step) const {
    return values + (buffers == 2 ? block % 2 : block * steps + step) * v_bytes;
  }
  const AttentionSplit& split;
  std::size_t dim, steps, elements_bytes, k_offset, v_offset, first_block, buffers, k_bytes, v_bytes;
  std::byte* queries;  // [2 tiles of rows][steps][2 planes]
  std::byte* weights;  // [2 tiles of rows][blocks][2 planes]
  float* scores;       // [32 rows][kSplitPositions]
  std::byte* sums;     // [2 tiles of rows][2 tiles of dimensions]
  std::byte* keys;     // [buffers][steps][2 tiles of positions][planes]
  std::byte* values;   // [buffers or blocks][steps][2 tiles of dimensions][planes]
};

// Expands a block's keys. Line j of a tile: dimensions 32 * step + j and 32 * step + 16 + j, of 16 positions.
template <class Kv>
void expand_keys(const Work<Kv>& work, std::size_t block, const std::byte* next) {
  constexpr std::size_t kRowBytes = kPositions * Kv::kBytes, kPlanes = Kv::kPlanes;
  const std::byte* k = work.split.blocks[block] + work.k_offset;
  std::byte* out = work.keys_of(block);
  for (std::size_t d = 0; d < work.dim;
       d += 32, out += 2 * kPlanes * kTile, k += 32 * kRowBytes, next += 32 * kRowBytes) {
    if (work.dim - d >= 32) {
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 16; ++j) {
        const std::byte* at = k + j * kRowBytes;
        prefetch(next + j * kRowBytes);
        prefetch(next + (16 + j) * kRowBytes);
        for (std::size_t c = 0; c < 2; ++c, at += 16 * Kv::kBytes)
          store_pairs<kPlanes, false>(Kv::load(at), Kv::load(at + 16 * kRowBytes),
                                      out + c * kPlanes * kTile + j * kLine);
      }
      continue;
    }
    for (std::size_t j = 0; j < 16; ++j)
      for (std::size_t c = 0; c < 2; ++c) {
        const std::byte* at = k + j * kRowBytes + 16 * c * Kv::kBytes;
        const __m512 even = d + j < work.dim ? Kv::load(at) : _mm512_setzero_ps();
        const __m512 odd = d + 16 + j < work.dim ? Kv::load(at + 16 * kRowBytes) : _mm512_setzero_ps();
        store_pairs<kPlanes, false>(even, odd, out + c * kPlanes * kTile + j * kLine);
      }
  }
}

// Expands a block's values. Line j of a tile: positions j and 16 + j, of 16 dimensions. Positions from num_seen on
// become zero, because their slots may hold NaN.
template <class Kv>
void expand_values(const Work<Kv>& work, std::size_t block, std::size_t step, std::size_t num_seen,
                   const std::byte* next) {
  constexpr std::size_t kPlanes = Kv::kPlanes;
  const std::size_t row_bytes = work.dim * Kv::kBytes, offset = 32 * step * Kv::kBytes;
  const std::byte* v = work.split.blocks[block] + work.v_offset + offset;
  next += offset;
  std::byte* out = work.values_of(block, step);
  const std::size_t left = work.dim - 32 * step;
  if (left >= 32 && num_seen >= (block + 1) * kPositions) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 16; ++j) {
      const std::byte* at = v + j * row_bytes;
      prefetch(next + j * row_bytes);
      prefetch(next + (16 + j) * row_bytes);
      for (std::size_t c = 0; c < 2; ++c, at += 16 * Kv::kBytes)
        store_pairs<kPlanes, false>(Kv::load(at), Kv::load(at + 16 * row_bytes), out + c * kPlanes * kTile + j * kLine);
    }
    return;
  }
  const std::size_t seen = num_seen - block * kPositions;
  for (std::size_t j = 0; j < 16; ++j)
    for (std::size_t c = 0; c < 2; ++c) {
      const __mmask16 mask = lanes_below(16 * c, left);
      const std::byte* at = v + j * row_bytes + 16 * c * Kv::kBytes;
      const __m512 even = Kv::load(at, j < seen ? mask : __mmask16{0});
      const __m512 odd = Kv::load(at + 16 * row_bytes, 16 + j < seen ? mask : __mmask16{0});
      store_pairs<kPlanes, false>(even, odd, out + c * kPlanes * kTile + j * kLine);
    }
}

// Tiles 0..3 += rows x columns, R tiles of rows by two of columns. A row tile's planes are adjacent; row tiles are
// `rows_stride` apart.
template <class Kv, std::size_t R>
TROUPE_INLINE void multiply(const std::byte* rows, std::size_t rows_stride, const std::byte* columns) {
  TROUPE_TILE_LOAD(4, columns, kLine);
  TROUPE_TILE_LOAD(6, rows + kTile, kLine);
  _tile_dpbf16ps(0, 6, 4);
  TROUPE_TILE_LOAD(5, columns + Kv::kPlanes * kTile, kLine);
  _tile_dpbf16ps(1, 6, 5);
  if (R == 2) {
    TROUPE_TILE_LOAD(7, rows + rows_stride + kTile, kLine);
    _tile_dpbf16ps(2, 7, 4);
    _tile_dpbf16ps(3, 7, 5);
  }
  TROUPE_TILE_LOAD(6, rows, kLine);
  _tile_dpbf16ps(0, 6, 4);
  _tile_dpbf16ps(1, 6, 5);
  if (R == 2) {
    TROUPE_TILE_LOAD(7, rows + rows_stride, kLine);
    _tile_dpbf16ps(2, 7, 4);
    _tile_dpbf16ps(3, 7, 5);
  }
  if (Kv::kPlanes == 1) return;
  TROUPE_TILE_LOAD(4, columns + kTile, kLine);
  _tile_dpbf16ps(0, 6, 4);
  TROUPE_TILE_LOAD(5, columns + 3 * kTile, kLine);
  _tile_dpbf16ps(1, 6, 5);
  if (R == 2) {
    _tile_dpbf16ps(2, 7, 4);
    _tile_dpbf16ps(3, 7, 5);
  }
}

template <std::size_t R>
TROUPE_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if (R == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
}

template <std::size_t R>
TROUPE_INLINE void store_sums(std::byte* to, std::size_t row_stride, std::size_t tile_stride) {
  TROUPE_TILE_STORE(0, to, row_stride);
  TROUPE_TILE_STORE(1, to + kLine, row_stride);
  if (R == 2) {
    TROUPE_TILE_STORE(2, to + tile_stride, row_stride);
    TROUPE_TILE_STORE(3, to + tile_stride + kLine, row_stride);
  }
}

// Up to 32 rows, [rows, rows + count). num_seen is the maximum over these rows.
struct Group {
  const AttentionRow* rows;
  std::size_t count;
  std::size_t num_seen;
  std::size_t num_blocks() const { return (num_seen + kPositions - 1) / kPositions; }
};

template <class Kv>
void place_queries(const Work<Kv>& work, const Group& group) {
  for (std::size_t r = 0; r < group.count; ++r) {
    std::byte* line = work.queries + r / kTileRows * (2 * work.steps * kTile) + r % kTileRows * kLine;
    const float* q = group.rows[r].q;
    for (std::size_t d = 0; d < work.dim; d += 32, line += 2 * kTile)
      store_pairs<2, true>(_mm512_maskz_loadu_ps(first_lanes(work.dim - d), q + d),
                           _mm512_maskz_loadu_ps(lanes_below(d + 16, work.dim), q + d + 16), line);
  }
}

template <class Kv, std::size_t R>
void score_block(const Work<Kv>& work, std::size_t block) {
  const std::byte* keys = work.keys_of(block);
  zero_sums<R>();
  for (std::size_t step = 0; step < work.steps; ++step)
    multiply<Kv, R>(work.queries + step * 2 * kTile, 2 * work.steps * kTile, keys + step * 2 * Kv::kPlanes * kTile);
  store_sums<R>(reinterpret_cast<std::byte*>(work.scores + block * kPositions), kScoreBytes, kTileRows * kScoreBytes);
}

// Turns row r's scores into weights, and writes the largest score and the sum to its partial. Computed in powers of
// two: t = score * log2(e). Positions that the row does not see get -infinity and so a weight of zero, even if a scale
// is NaN.
template <class Kv, bool capped>
void weigh_row(const Work<Kv>& work, const Group& group, std::size_t r) {
  constexpr bool kScaledFirst = Kv::kScaled || capped;
  const AttentionRow& row = group.rows[r];
  float* scores = work.scores + r * kSplitPositions;
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  const __m512 scale = _mm512_set1_ps(work.split.scale * kLog2E);
  const auto scales_at = [&](std::size_t p, std::size_t offset) {
    return _mm512_loadu_ps(work.split.blocks[p / kPositions] + offset + work.elements_bytes +
                           p % kPositions * sizeof(float));
  };
  const auto with_offsets = [&](__m512 score, std::size_t p, __m512 by) {
    return Kv::kScaled && row.offsets ? _mm512_fmadd_ps(_mm512_loadu_ps(row.offsets + p), by, score) : score;
  };
  // int8: scaled here, because each position has its own scale; f16 without a cap: scaled below, after the subtraction.
  const auto scaled = [&](std::size_t p) {
    const __m512 score = _mm512_load_ps(scores + p);
    if (capped) {
      const float cap = work.split.soft_cap;
      const __m512 by = _mm512_set1_ps(work.split.scale / cap);
      const __m512 part = _mm512_mul_ps(score, Kv::kScaled ? _mm512_mul_ps(scales_at(p, work.k_offset), by) : by);
      return _mm512_mul_ps(tanh_avx512(with_offsets(part, p, by)), _mm512_set1_ps(cap * kLog2E));
    }
    if (!Kv::kScaled) return score;
    return with_offsets(_mm512_mul_ps(score, _mm512_mul_ps(scales_at(p, work.k_offset), scale)), p, scale);
  };
  const std::size_t begin = work.first_block * kPositions, end = group.num_blocks() * kPositions;
  const auto seen_lanes = [&](std::size_t p) {
    return static_cast<__mmask16>(lanes_below(p, row.num_seen) & ~lanes_below(p, row.first_seen));
  };
  __m512 max_lanes = lowest;
  const auto keep_seen = [&](std::size_t p) {
    const __m512 score = _mm512_mask_mov_ps(lowest, seen_lanes(p), scaled(p));
    _mm512_store_ps(scores + p, score);
    max_lanes = _mm512_max_ps(score, max_lanes);
  };
  std::size_t p = begin;
  for (; p < row.first_seen; p += 16) keep_seen(p);
  for (; p + 16 <= row.num_seen; p += 16) {
    const __m512 score = scaled(p);
    if (kScaledFirst) _mm512_store_ps(scores + p, score);
    max_lanes = _mm512_max_ps(score, max_lanes);
  }
  for (; p < end; p += 16) keep_seen(p);
  const float max = _mm512_reduce_max_ps(max_lanes);
  const __m512 maxima = _mm512_set1_ps(max);
  __m512 sum = _mm512_setzero_ps();
  const auto weigh = [&](std::size_t at) {
    const __m512 below = _mm512_sub_ps(_mm512_load_ps(scores + at), maxima);
    const __m512 weight = exp2_weights(kScaledFirst ? below : _mm512_mul_ps(below, scale));
    sum = _mm512_add_ps(sum, weight);
    return weight;
  };
  std::byte* line =
      work.weights + (r / kTileRows * kSplitBlocks + work.first_block) * 2 * kTile + r % kTileRows * kLine;
  for (p = begin; p < end; p += kPositions, line += 2 * kTile) {
    __m512 first = weigh(p), second = weigh(p + 16);
    if (Kv::kScaled && p >= row.first_seen && p + kPositions <= row.num_seen) {
      first = _mm512_mul_ps(first, scales_at(p, work.v_offset));
      second = _mm512_mul_ps(second, scales_at(p + 16, work.v_offset));
    } else if (Kv::kScaled) {
      first = _mm512_maskz_mul_ps(seen_lanes(p), first, scales_at(p, work.v_offset));
      second = _mm512_maskz_mul_ps(seen_lanes(p + 16), second, scales_at(p + 16, work.v_offset));
    }
    store_pairs<2, true>(first, second, line);
  }
  row.partial[0] = kScaledFirst ? max * kLn2 : max * work.split.scale;
  row.partial[1] = sum_of_lanes(sum);
}

template <class Kv, std::size_t R>
void add_values(const Work<Kv>& work, const Group& group, std::size_t num_seen, bool is_first, std::size_t step) {
  const std::size_t num_blocks = group.num_blocks();
  const auto expand = [&](std::size_t block) {
    const std::size_t ahead = block + kAhead;
    const std::byte* next = ahead < num_blocks      ? work.split.blocks[ahead] + work.v_offset
                            : work.split.next_block ? work.split.next_block + work.k_offset
                                                    : work.split.blocks[block] + work.v_offset;
    expand_values<Kv>(work, block, step, num_seen, next);
  };
  zero_sums<R>();
  if (is_first) expand(work.first_block);
  for (std::size_t block = work.first_block; block < num_blocks; ++block) {
    if (is_first && block + 1 < num_blocks) expand(block + 1);
    multiply<Kv, R>(work.weights + block * 2 * kTile, 2 * kSplitBlocks * kTile, work.values_of(block, step));
  }
  store_sums<R>(work.sums, 2 * kLine, 2 * kTile);
  const std::size_t end = (work.dim + 15) / 16 * 16;
  for (std::size_t r = 0; r < group.count; ++r)
    for (std::size_t d = 32 * step; d < 32 * step + 32 && d < end; d += 16)
      _mm512_store_ps(group.rows[r].partial + kPartialValues + d,
                      _mm512_load_ps(work.sums + r * 2 * kLine + (d % 32) * sizeof(float)));
}

template <class Kv, std::size_t R>
void attend_group(const Work<Kv>& work, const Group& group, std::size_t num_seen, bool is_first) {
  const std::size_t num_blocks = group.num_blocks();
  const auto expand = [&](std::size_t block) {
    // After the last K block, prefetch the first V block.
    const std::size_t ahead = block + kAhead, first_v = work.first_block + ahead - num_blocks;
    const std::byte* next = ahead < num_blocks
                                ? work.split.blocks[ahead] + work.k_offset
                                : work.split.blocks[first_v < num_blocks ? first_v : work.first_block] + work.v_offset;
    expand_keys<Kv>(work, block, next);
  };
  if (is_first) expand(work.first_block);
  place_queries<Kv>(work, group);
  for (std::size_t block = work.first_block; block < num_blocks; ++block) {
    if (is_first && block + 1 < num_blocks) expand(block + 1);
    score_block<Kv, R>(work, block);
  }
  for (std::size_t r = 0; r < group.count; ++r) {
    if (work.split.soft_cap != 0.0f)
      weigh_row<Kv, true>(work, group, r);
    else
      weigh_row<Kv, false>(work, group, r);
  }
  for (std::size_t step = 0; step < work.steps; ++step) add_values<Kv, R>(work, group, num_seen, is_first, step);
}

// The group that sees most positions comes first: it expands all that the others need.
template <class Kv>
void attend(const AttentionSplit& split) {
  const Work<Kv> work(split);
  const std::size_t num_groups = (split.rows.size() + kGroupRows - 1) / kGroupRows;
  const auto group_of = [&](std::size_t index) {
    const std::size_t first = index * kGroupRows, left = split.rows.size() - first;
    Group group{split.rows.data() + first, left < kGroupRows ? left : kGroupRows, 0};
    for (std::size_t r = 0; r < group.count; ++r)
      if (group.rows[r].num_seen > group.num_seen) group.num_seen = group.rows[r].num_seen;
    return group;
  };
  std::size_t most = 0;
  for (std::size_t i = 1; i < num_groups; ++i)
    if (group_of(i).num_seen > group_of(most).num_seen) most = i;
  const std::size_t num_seen = group_of(most).num_seen;
  _tile_loadconfig(&kConfig);
  for (std::size_t i = 0; i < num_groups; ++i) {
    const Group group = group_of(i == 0 ? most : i == most ? 0 : i);
    if (group.count > kTileRows)
      attend_group<Kv, 2>(work, group, num_seen, i == 0);
    else
      attend_group<Kv, 1>(work, group, num_seen, i == 0);
  }
  _tile_release();
}

}  // namespace

void attend_split(const AttentionSplit& split) {
  switch (split.shape.type) {
    case KvType::f32:
      return avx512::attend_split(split);
    case KvType::f16:
      return attend<F16>(split);
    case KvType::i8:
      return attend<I8>(split);
  }
}

}  // namespace troupe::kernels::amx
