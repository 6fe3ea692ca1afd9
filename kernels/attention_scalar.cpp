// The scalar variant's attention: one query row at a time, in the order of the contract in kernels.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/exp_scalar.h"
#include "kernels/half.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
namespace {

constexpr std::uint32_t kPositions = 32;  // in a block

float load_element(KvType type, const std::byte* from) {
  return type == KvType::f16 ? load_half(from) : load<float>(from);
}

void store_element(KvType type, std::byte* to, float value) {
  if (type == KvType::f16)
    store(to, half_of_float(value));
  else
    store(to, value);
}

// A softmax-weighted sum of V so far: exp(score - max) are the weights, `sum` their sum.
struct Partial {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
  float* values = nullptr;  // [head_dim]
};

// Adds the first `count` positions of a block.
void add_block(const AttentionArgs& args, const std::byte* block, const float* q, std::uint32_t count,
               Partial& partial) {
  const KvShape& shape = args.shape;
  const std::size_t dim = shape.head_dim, size = element_bytes(shape.type);
  const std::byte* k = block + args.kv_head * shape.k_head_bytes();
  const std::byte* v = block + shape.v_offset() + args.kv_head * shape.k_head_bytes();
  float scores[kPositions] = {};
  for (std::size_t d = 0; d < dim; ++d)
    for (std::uint32_t p = 0; p < count; ++p)
      scores[p] += q[d] * load_element(shape.type, k + (d * kPositions + p) * size);
  float max = partial.max;
  for (std::uint32_t p = 0; p < count; ++p) {
    scores[p] *= args.scale;
    max = std::max(max, scores[p]);
  }
  const float shrink = exp_scalar(partial.max - max);
  partial.sum *= shrink;
  for (std::size_t d = 0; d < dim; ++d) partial.values[d] *= shrink;
  for (std::uint32_t p = 0; p < count; ++p) {
    const float weight = exp_scalar(scores[p] - max);
    partial.sum += weight;
    for (std::size_t d = 0; d < dim; ++d)
      partial.values[d] += weight * load_element(shape.type, v + (p * dim + d) * size);
  }
  partial.max = max;
}

void merge(const Partial& from, std::size_t dim, Partial& into) {
  const float max = std::max(into.max, from.max);
  const float a = exp_scalar(into.max - max);
  const float b = exp_scalar(from.max - max);
  into.sum = into.sum * a + from.sum * b;
  for (std::size_t d = 0; d < dim; ++d) into.values[d] = into.values[d] * a + from.values[d] * b;
  into.max = max;
}

void attend_row(const AttentionArgs& args, const float* q, std::uint32_t num_positions, float* out) {
  const std::size_t dim = args.shape.head_dim;
  Partial total{.values = args.scratch};
  std::fill_n(total.values, dim, 0.0f);
  const std::uint32_t num_blocks = (num_positions + kPositions - 1) / kPositions;
  for (std::uint32_t split = 0; split < num_blocks; split += kSplitBlocks) {
    Partial partial{.values = args.scratch + dim};
    std::fill_n(partial.values, dim, 0.0f);
    for (std::uint32_t b = split; b < std::min(split + kSplitBlocks, num_blocks); ++b)
      add_block(args, args.blocks[b], q, std::min(kPositions, num_positions - b * kPositions), partial);
    merge(partial, dim, total);
  }
  for (std::size_t d = 0; d < dim; ++d) out[d] = total.values[d] / total.sum;
}

}  // namespace

void store_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v) {
  const std::size_t dim = shape.head_dim, size = element_bytes(shape.type);
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head) {
    std::byte* k_head = layer_block + head * shape.k_head_bytes();
    std::byte* v_row = layer_block + shape.v_offset() + head * shape.k_head_bytes() + slot * dim * size;
    for (std::size_t d = 0; d < dim; ++d) {
      store_element(shape.type, k_head + (d * kPositions + slot) * size, k[head * dim + d]);
      store_element(shape.type, v_row + d * size, v[head * dim + d]);
    }
  }
}

void attention(const AttentionArgs& args) {
  for (std::uint32_t t = 0; t < args.num_tokens; ++t)
    for (std::uint32_t g = 0; g < args.group; ++g) {
      const std::size_t at = t * args.token_stride + g * args.shape.head_dim;
      attend_row(args, args.q + at, args.first_position + t + 1, args.out + at);
    }
}

}  // namespace troupe::kernels::scalar
