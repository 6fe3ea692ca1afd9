// The reference variant: exact weights, float32 activations, double sums.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "config/assert.h"
#include "kernels/half.h"
#include "kernels/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::reference {
namespace {

constexpr std::size_t kChunk = 256;   // of k: the largest group
constexpr std::size_t kRowTile = 16;  // rows that share one dequantised chunk

}  // namespace

void prepare_f32(const float* x, std::size_t k, std::size_t row, std::byte* prepared) {
  std::memcpy(prepared + row * layout::float_row_bytes(k), x, k * sizeof(float));
}

void matmul(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
            std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  TROUPE_ASSERT(matrix.layout == Layout::file);
  const WeightTypeInfo& type = info(matrix.type);
  const std::size_t row_bytes = matrix.k / type.group_size * type.group_bytes;
  const std::size_t prepared_stride = prepared_bytes(Activation::f32, matrix.k, 1);
  const std::size_t n_end = std::min(matrix.rows, panel_end * kPanelRows);
  for (std::size_t n = panel_begin * kPanelRows; n < n_end; ++n) {
    const std::byte* weights = matrix.body + n * row_bytes;
    for (std::size_t tile = 0; tile < num_rows; tile += kRowTile) {
      const std::size_t rows = std::min(kRowTile, num_rows - tile);
      double sums[kRowTile] = {};
      for (std::size_t begin = 0; begin < matrix.k; begin += kChunk) {
        const std::size_t count = std::min(kChunk, matrix.k - begin);
        float w[kChunk];
        dequantize(matrix.type, weights + begin / type.group_size * type.group_bytes, w, count);
        for (std::size_t r = 0; r < rows; ++r) {
          const auto* a = reinterpret_cast<const float*>(prepared + (tile + r) * prepared_stride) + begin;
          for (std::size_t i = 0; i < count; ++i) sums[r] += static_cast<double>(a[i]) * w[i];
        }
      }
      for (std::size_t r = 0; r < rows; ++r)
        out[(tile + r) * out_stride + n] = static_cast<float>(sums[r] * static_cast<double>(matrix.scale));
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

void silu_mul(const float* gate, const float* up, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double g = gate[i];
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
  }
}

void add(float* x, const float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] += y[i];
}

void store_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim, size = element_bytes(shape.type);
  const auto put = [&](std::byte* to, float value) {
    if (shape.type == KvType::f16)
      store(to, half_of_float(value));
    else
      store(to, value);
  };
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head) {
    std::byte* k_head = layer_block + head * shape.k_head_bytes();
    std::byte* v_row = layer_block + shape.v_offset() + (head * 32 + slot) * dim * size;
    for (std::size_t d = 0; d < dim; ++d) {
      put(k_head + (d * 32 + slot) * size, k[head * dim + d]);
      put(v_row + d * size, v[head * dim + d]);
    }
  }
}

// Two passes over the positions a row sees: the largest score, then the weighted sum.
void attention(const AttentionArgs& args) {
  const KvShape& shape = args.shape;
  const std::size_t dim = shape.head_dim, size = element_bytes(shape.type);
  const auto get = [&](const std::byte* from) -> double {
    return shape.type == KvType::f16 ? load_half(from) : load<float>(from);
  };
  for (std::size_t t = 0; t < args.num_tokens; ++t)
    for (std::size_t g = 0; g < args.group; ++g) {
      const float* q = args.q + t * args.token_stride + g * dim;
      float* out = args.out + t * args.token_stride + g * dim;
      const auto score = [&](std::size_t position) {
        const std::byte* k = args.blocks[position / 32] + args.kv_head * shape.k_head_bytes() + position % 32 * size;
        double sum = 0;
        for (std::size_t d = 0; d < dim; ++d) sum += q[d] * get(k + d * 32 * size);
        return sum * args.scale;
      };
      const std::size_t num_positions = args.first_position + t + 1;
      double max = -std::numeric_limits<double>::infinity();
      for (std::size_t p = 0; p < num_positions; ++p) max = std::max(max, score(p));
      double weights = 0;
      auto* sums = reinterpret_cast<double*>(args.scratch);  // it has room for 2 * head_dim floats
      std::uninitialized_fill_n(sums, dim, 0.0);
      for (std::size_t p = 0; p < num_positions; ++p) {
        const double weight = std::exp(score(p) - max);
        const std::byte* v = args.blocks[p / 32] + shape.v_offset() + (args.kv_head * 32 + p % 32) * dim * size;
        weights += weight;
        for (std::size_t d = 0; d < dim; ++d) sums[d] += weight * get(v + d * size);
      }
      for (std::size_t d = 0; d < dim; ++d) out[d] = static_cast<float>(sums[d] / weights);
    }
}

MaxAt arg_max(const float* x, std::size_t count) {
  MaxAt best{-std::numeric_limits<float>::infinity(), 0};
  bool found = false;
  for (std::size_t i = 0; i < count; ++i)
    if (x[i] > best.value || (!found && x[i] == best.value)) {
      best = {x[i], static_cast<std::uint32_t>(i)};
      found = true;
    }
  return best;
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
