#include "engine/sequence_view.h"

#include <cstring>

#include "config/assert.h"
#include "kernels/half.h"

namespace troupe::engine {
namespace {

float load_element(kernels::KvType type, const std::byte* from) {
  if (type == kernels::KvType::f16) return kernels::load_half(from);
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

kernels::KvShape kv_shape_of(const LoadedModel& model) {
  return {
      .type = model.cache_spec().kv_type, .num_kv_heads = model.info().num_kv_heads, .head_dim = model.info().head_dim};
}

SequenceView::SequenceView(const LoadedModel& model, Executor& executor, SequenceId id)
    : model_(model), executor_(executor), id_(id) {
  TROUPE_ASSERT(executor.is_open(id));
}

std::uint32_t SequenceView::capacity() const {
  return static_cast<std::uint32_t>(executor_.block_table(id_).size()) * kBlockSize;
}

std::vector<float> SequenceView::keys(std::uint32_t layer) const { return copy(layer, Part::keys); }
std::vector<float> SequenceView::values(std::uint32_t layer) const { return copy(layer, Part::values); }

std::vector<float> SequenceView::copy(std::uint32_t layer, Part part) const {
  TROUPE_ASSERT(layer < model_.info().num_layers);
  const kernels::KvShape shape = kv_shape_of(model_);
  const std::size_t element = kernels::element_bytes(shape.type);
  const std::size_t dim = shape.head_dim;
  const std::span<const BlockId> table = executor_.block_table(id_);
  std::vector<float> out(std::size_t{length()} * shape.num_kv_heads * dim);
  float* to = out.data();
  for (std::uint32_t position = 0; position < length(); ++position) {
    const std::size_t slot = position % kBlockSize;
    const std::byte* base = model_.arena()->block(table[position / kBlockSize]) + layer * shape.layer_bytes();
    if (part == Part::values) base += shape.v_offset();
    for (std::uint32_t head = 0; head < shape.num_kv_heads; ++head, base += shape.k_head_bytes()) {
      for (std::size_t i = 0; i < dim; ++i) {
        const std::size_t index = part == Part::keys ? i * kBlockSize + slot : slot * dim + i;  // K is transposed
        *to++ = load_element(shape.type, base + index * element);
      }
    }
  }
  return out;
}

}  // namespace troupe::engine
