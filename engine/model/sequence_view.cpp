#include "engine/model/sequence_view.h"

#include "config/assert.h"

namespace troupe::engine {

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

std::vector<float> SequenceView::copy(std::uint32_t layer, bool keys) const {
  TROUPE_ASSERT(layer < model_.info().num_layers && model_.cache_spec().groups.size() == 1 &&
                !model_.cache_spec().has_state());
  const kernels::KvShape shape = kv_shape_of(model_);
  const std::size_t dim = std::size_t{shape.num_kv_heads} * shape.head_dim;
  const std::span<const BlockId> table = executor_.block_table(id_);
  std::vector<float> out(length() * dim), other(dim);
  for (std::uint32_t position = 0; position < length(); ++position) {
    const std::byte* block = model_.arena()->block(table[position / kBlockSize]) + layer * shape.layer_bytes();
    float* to = out.data() + position * dim;
    kernels::load_kv(shape, block, position % kBlockSize, keys ? to : other.data(), keys ? other.data() : to);
  }
  return out;
}

}  // namespace troupe::engine
