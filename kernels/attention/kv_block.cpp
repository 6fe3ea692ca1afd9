// Sizes of KV blocks and scratch space, and access to blocks outside a step.
#include <algorithm>
#include <cstring>

#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/kernels.h"

namespace troupe::kernels {
namespace {

float load_element(KvType type, const std::byte* from) {
  return type == KvType::f32 ? load<float>(from) : type == KvType::f16 ? load_half(from) : load<std::int8_t>(from);
}

}  // namespace

std::string_view name(KvType type) { return type == KvType::f32 ? "f32" : type == KvType::f16 ? "f16" : "int8"; }

std::size_t element_bytes(KvType type) { return type == KvType::f32 ? 4 : type == KvType::f16 ? 2 : 1; }

std::size_t partial_floats(std::size_t head_dim) { return kPartialValues + layout::round_up(head_dim, 16); }

std::size_t attention_scratch_bytes(std::size_t head_dim) {
  // The need of variant `amx`, in tiles of 1 KiB: 32 query rows, a split's K and V, scores, weights, sums. The other
  // variants need only the scores of some rows.
  constexpr std::size_t kTileBytes = 1024;
  const std::size_t steps = (head_dim + 31) / 32;
  const std::size_t tiles = 4 * steps + 2 * (kSplitBlocks * 4 * steps) + 32 + 4 * kSplitBlocks + 4;
  return tiles * kTileBytes;
}

void load_kv(const KvShape& shape, const std::byte* layer_block, std::uint32_t slot, float* k, float* v) {
  const std::size_t dim = shape.head_dim, size = element_bytes(shape.type);
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head) {
    const std::byte* k_head = layer_block + head * shape.head_bytes();
    const std::byte* v_head = k_head + shape.v_offset();
    float k_scale = 1, v_scale = 1;
    if (shape.type == KvType::i8) {
      k_scale = load<float>(k_head + shape.elements_bytes() + slot * sizeof(float));
      v_scale = load<float>(v_head + shape.elements_bytes() + slot * sizeof(float));
    }
    for (std::size_t d = 0; d < dim; ++d) {
      *k++ = load_element(shape.type, k_head + (d * kBlockPositions + slot) * size) * k_scale;
      *v++ = load_element(shape.type, v_head + (slot * dim + d) * size) * v_scale;
    }
  }
}

void clear_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t first_slot) {
  const std::size_t dim = shape.head_dim, size = element_bytes(shape.type), unused = kBlockPositions - first_slot;
  for (std::size_t head = 0; head < shape.num_kv_heads; ++head) {
    std::byte* k_head = layer_block + head * shape.head_bytes();
    std::byte* v_head = k_head + shape.v_offset();
    for (std::size_t d = 0; d < dim; ++d)
      std::memset(k_head + (d * kBlockPositions + first_slot) * size, 0, unused * size);
    std::memset(v_head + first_slot * dim * size, 0, unused * dim * size);
    if (shape.type != KvType::i8) continue;
    for (std::byte* part : {k_head, v_head})
      std::memset(part + shape.elements_bytes() + first_slot * sizeof(float), 0, unused * sizeof(float));
  }
}

}  // namespace troupe::kernels
