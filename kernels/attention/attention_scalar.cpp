// The scalar variant's attention: one query row at a time, in the order of the contract in kernels.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/rows/exp_scalar.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
namespace {

constexpr float kMaxHalf = 65504.0f;
constexpr float kMaxScaled = 1e38f;  // keeps 127 times its scale finite in any rounding

struct F32 {
  static constexpr std::size_t kBytes = 4;
  static float load(const std::byte* from) { return kernels::load<float>(from); }
};
struct F16 {
  static constexpr std::size_t kBytes = 2;
  static float load(const std::byte* from) { return load_half(from); }
};
struct I8 {
  static constexpr std::size_t kBytes = 1;
  static float load(const std::byte* from) { return kernels::load<std::int8_t>(from); }
};

template <class Kv>
void attend_row(const AttentionSplit& split, const AttentionRow& row) {
  const KvShape& shape = split.shape;
  const std::size_t dim = shape.head_dim;
  const auto part_of = [&](std::size_t position) {
    return split.blocks[position / kBlockPositions] + split.kv_head * shape.head_bytes();
  };
  const auto scale_of = [&](const std::byte* part, std::size_t position) {
    return shape.type == KvType::i8
               ? load<float>(part + shape.elements_bytes() + position % kBlockPositions * sizeof(float))
               : 1.0f;
  };
  float weights[kSplitPositions];
  float max = -std::numeric_limits<float>::infinity();
  for (std::size_t p = row.first_seen; p < row.num_seen; ++p) {
    const std::byte* k = part_of(p);
    float score = 0.0f;
    for (std::size_t d = 0; d < dim; ++d)
      score += row.q[d] * Kv::load(k + (d * kBlockPositions + p % kBlockPositions) * Kv::kBytes);
    weights[p] = score * (scale_of(k, p) * split.scale);
    if (row.offsets) weights[p] += row.offsets[p] * split.scale;
    if (split.soft_cap != 0.0f) weights[p] = split.soft_cap * tanh_scalar(weights[p] * (1.0f / split.soft_cap));
    max = std::max(max, weights[p]);
  }
  float* values = row.partial + kPartialValues;
  std::fill(values, row.partial + partial_floats(dim), 0.0f);
  float sum = 0.0f;
  for (std::size_t p = row.first_seen; p < row.num_seen; ++p) {
    const std::byte* v = part_of(p) + shape.v_offset();
    const float weight = exp_scalar(weights[p] - max);
    sum += weight;
    const float scaled = weight * scale_of(v, p);
    for (std::size_t d = 0; d < dim; ++d)
      values[d] += scaled * Kv::load(v + (p % kBlockPositions * dim + d) * Kv::kBytes);
  }
  row.partial[0] = max;
  row.partial[1] = sum;
}

// Clamps x to [-most, most]; NaN becomes -most.
float limited(float x, float most) {
  const float low = x > -most ? x : -most;
  return low < most ? low : most;
}

// Rounds one head: writes the codes to out[d * stride] and returns the scale.
float store_codes(const float* x, std::size_t dim, std::byte* out, std::size_t stride) {
  float max = 0.0f;
  for (std::size_t d = 0; d < dim; ++d) {
    const float magnitude = x[d] < 0.0f ? -x[d] : x[d];
    max = magnitude > max ? magnitude : max;
  }
  max = max < kMaxScaled ? max : kMaxScaled;
  const bool tiny = !(max > layout::kSmallestMax);
  const float inverse = tiny ? 0.0f : 127.0f / max;
  for (std::size_t d = 0; d < dim; ++d) {
    const float code = (limited(x[d] * inverse, 127.0f) + kRoundMagic) - kRoundMagic;
    store(out + d * stride, static_cast<std::int8_t>(code));
  }
  return tiny ? 0.0f : max / 127.0f;
}

}  // namespace

void store_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim, size = element_bytes(shape.type);
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head, k += dim, v += dim) {
    std::byte* k_head = layer_block + head * shape.head_bytes();
    std::byte* v_head = k_head + shape.v_offset();
    std::byte* k_column = k_head + slot * size;
    std::byte* v_row = v_head + slot * dim * size;
    switch (shape.type) {
      case KvType::f32:
        for (std::size_t d = 0; d < dim; ++d) store(k_column + d * kBlockPositions * size, k[d]);
        std::memcpy(v_row, v, dim * size);
        break;
      case KvType::f16:
        for (std::size_t d = 0; d < dim; ++d) {
          store(k_column + d * kBlockPositions * size, half_of_float(limited(k[d], kMaxHalf)));
          store(v_row + d * size, half_of_float(limited(v[d], kMaxHalf)));
        }
        break;
      case KvType::i8:
        store(k_head + shape.elements_bytes() + slot * sizeof(float), store_codes(k, dim, k_column, kBlockPositions));
        store(v_head + shape.elements_bytes() + slot * sizeof(float), store_codes(v, dim, v_row, 1));
        break;
    }
  }
}

void attend_split(const AttentionSplit& split) {
  for (const AttentionRow& row : split.rows) {
    switch (split.shape.type) {
      case KvType::f32:
        attend_row<F32>(split, row);
        break;
      case KvType::f16:
        attend_row<F16>(split, row);
        break;
      case KvType::i8:
        attend_row<I8>(split, row);
        break;
    }
  }
}

void score_offsets(const float* q, const float* part, std::size_t head_dim, std::size_t num_blocks, float* out) {
  for (std::size_t block = 0; block < num_blocks; ++block, q += head_dim, out += kBlockPositions) {
    std::fill(out, out + kBlockPositions, 0.0f);
    for (std::size_t d = 0; d < head_dim; ++d)
      for (std::size_t slot = 0; slot < kBlockPositions; ++slot) out[slot] += q[d] * part[d * kBlockPositions + slot];
  }
}

void merge_partial(const float* partial, std::size_t head_dim, float* total) {
  const float max = std::max(total[0], partial[0]);
  const float a = exp_scalar(total[0] - max);
  const float b = exp_scalar(partial[0] - max);
  total[0] = max;
  total[1] = total[1] * a + partial[1] * b;
  for (std::size_t i = kPartialValues; i < kPartialValues + head_dim; ++i) total[i] = total[i] * a + partial[i] * b;
}

void finish_attention(const float* total, std::size_t head_dim, float* out) {
  for (std::size_t d = 0; d < head_dim; ++d) out[d] = total[kPartialValues + d] / total[1];
}

}  // namespace troupe::kernels::scalar
