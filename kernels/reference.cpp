// The reference variant: exact weights, float32 activations, double sums.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "config/assert.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::reference {
namespace {

constexpr std::size_t kChunk = 256;     // weights per chunk: the largest group
constexpr std::size_t kRowTile = 16;    // rows that share dequantised chunks
constexpr std::size_t kWeightRows = 4;  // rows of weights whose sums are made together: none waits for another

}  // namespace

void matmul(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
            std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  TROUPE_ASSERT(matrix.layout == Layout::file);
  const WeightTypeInfo& type = info(matrix.type);
  const std::size_t row_bytes = matrix.k / type.group_size * type.group_bytes;
  const std::size_t prepared_stride = prepared_bytes(Activation::f32, matrix.k, 1);
  const std::size_t n_end = std::min(matrix.rows, panel_end * kPanelRows);
  for (std::size_t n = panel_begin * kPanelRows; n < n_end; n += kWeightRows) {
    const std::size_t weight_rows = std::min(kWeightRows, n_end - n);
    for (std::size_t tile = 0; tile < num_rows; tile += kRowTile) {
      const std::size_t rows = std::min(kRowTile, num_rows - tile);
      double sums[kRowTile][kWeightRows] = {};
      for (std::size_t begin = 0; begin < matrix.k; begin += kChunk) {
        const std::size_t count = std::min(kChunk, matrix.k - begin);
        float w[kWeightRows][kChunk] = {};
        for (std::size_t j = 0; j < weight_rows; ++j) {
          const std::byte* weights = matrix.body + (n + j) * row_bytes;
          dequantize(matrix.type, weights + begin / type.group_size * type.group_bytes, w[j], count);
        }
        for (std::size_t r = 0; r < rows; ++r) {
          const auto* a = reinterpret_cast<const float*>(prepared + (tile + r) * prepared_stride) + begin;
          for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < kWeightRows; ++j) sums[r][j] += static_cast<double>(a[i]) * w[j][i];
          }
        }
      }
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t j = 0; j < weight_rows; ++j)
          out[(tile + r) * out_stride + n + j] = static_cast<float>(sums[r][j] * static_cast<double>(matrix.scale));
      }
    }
  }
}

void rms_norm(const float* x, const float* weight, float* out, std::size_t dim, float eps) {
  double sum = 0;
  for (std::size_t i = 0; i < dim; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(dim) + static_cast<double>(eps));
  for (std::size_t i = 0; i < dim; ++i) out[i] = static_cast<float>(x[i] * inverse * weight[i]);
}

void rope(float* x, const float* cos, const float* sin, std::size_t rotated) {
  for (std::size_t i = 0; i < rotated / 2; ++i) {
    const double a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = static_cast<float>(a * cos[i] - b * sin[i]);
    x[2 * i + 1] = static_cast<float>(a * sin[i] + b * cos[i]);
  }
}

void soft_cap(float* x, float cap, std::size_t count) {
  const double limit = cap;
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(limit * std::tanh(x[i] / limit));
}

namespace {

// An element of a part of K or V: element `index`, of position `slot`.
double element(const KvShape& shape, const std::byte* part, std::size_t index, std::size_t slot) {
  switch (shape.type) {
    case KvType::f32:
      return load<float>(part + index * sizeof(float));
    case KvType::f16:
      return load_half(part + index * sizeof(std::uint16_t));
    case KvType::i8:
      return static_cast<double>(load<std::int8_t>(part + index)) *
             load<float>(part + shape.elements_bytes() + slot * sizeof(float));
  }
  return 0;
}

}  // namespace

// Sums in double, exp from libm; partials hold them rounded to float32.
void attend_split(const AttentionSplit& split) {
  const KvShape& shape = split.shape;
  const std::size_t dim = shape.head_dim;
  // K as [dim][positions] and V as [positions][dim]: what follows walks along the second, so that no sum waits for
  // another.
  thread_local std::vector<double> keys, values, sums;
  keys.resize(dim * kSplitPositions);
  values.resize(dim * kSplitPositions);
  std::size_t begin = kSplitPositions, end = 0;
  for (const AttentionRow& row : split.rows) {
    begin = std::min<std::size_t>(begin, row.first_seen);
    end = std::max<std::size_t>(end, row.num_seen);
  }
  for (std::size_t p = begin; p < end; ++p) {
    const std::size_t slot = p % kBlockPositions;
    const std::byte* k = split.blocks[p / kBlockPositions] + split.kv_head * shape.head_bytes();
    const std::byte* v = k + shape.v_offset();
    for (std::size_t d = 0; d < dim; ++d) {
      keys[d * kSplitPositions + p] = element(shape, k, d * kBlockPositions + slot, slot);
      values[p * dim + d] = element(shape, v, slot * dim + d, slot);
    }
  }
  for (const AttentionRow& row : split.rows) {
    double scores[kSplitPositions] = {};
    for (std::size_t d = 0; d < dim; ++d) {
      const double q = row.q[d];
      for (std::size_t p = row.first_seen; p < row.num_seen; ++p) scores[p] += q * keys[d * kSplitPositions + p];
    }
    double max = -std::numeric_limits<double>::infinity();
    for (std::size_t p = row.first_seen; p < row.num_seen; ++p) {
      if (row.offsets) scores[p] += row.offsets[p];
      scores[p] *= split.scale;
      if (split.soft_cap != 0.0f) scores[p] = split.soft_cap * std::tanh(scores[p] / split.soft_cap);
      max = std::max(max, scores[p]);
    }
    row.partial[0] = static_cast<float>(max);
    double sum = 0;
    for (std::size_t p = row.first_seen; p < row.num_seen; ++p) sum += scores[p] = std::exp(scores[p] - row.partial[0]);
    row.partial[1] = static_cast<float>(sum);
    sums.assign(dim, 0);
    for (std::size_t p = row.first_seen; p < row.num_seen; ++p) {
      for (std::size_t d = 0; d < dim; ++d) sums[d] += scores[p] * values[p * dim + d];
    }
    float* out = row.partial + kPartialValues;
    std::fill(out, row.partial + partial_floats(dim), 0.0f);
    for (std::size_t d = 0; d < dim; ++d) out[d] = static_cast<float>(sums[d]);
  }
}

void score_offsets(const float* q, const float* part, std::size_t head_dim, std::size_t num_blocks, float* out) {
  for (std::size_t block = 0; block < num_blocks; ++block, q += head_dim, out += kBlockPositions) {
    for (std::size_t slot = 0; slot < kBlockPositions; ++slot) {
      double sum = 0;
      for (std::size_t d = 0; d < head_dim; ++d) sum += static_cast<double>(q[d]) * part[d * kBlockPositions + slot];
      out[slot] = static_cast<float>(sum);
    }
  }
}

void merge_partial(const float* partial, std::size_t head_dim, float* total) {
  const float max = std::max(total[0], partial[0]);
  const double a = std::exp(static_cast<double>(total[0]) - max), b = std::exp(static_cast<double>(partial[0]) - max);
  total[0] = max;
  for (std::size_t i = 1; i < kPartialValues + head_dim; ++i)
    if (i == 1 || i >= kPartialValues) total[i] = static_cast<float>(total[i] * a + partial[i] * b);
}

float exp_tile(const float* x, float max, float inv_temperature, float* out, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = std::exp((static_cast<double>(x[i]) - max) * inv_temperature);
    out[i] = static_cast<float>(value);
    sum += value;
  }
  return static_cast<float>(sum);
}

}  // namespace troupe::kernels::reference
