#include "engine/layers/layer_pass.h"

#include <cstring>

#include "config/assert.h"

namespace troupe::engine {

using Slot = Workspace::Slot;

LayerPass::LayerPass(const ModelWeights& weights, Team& team, std::span<const SequenceRows> batch, Workspace& workspace)
    : kernels_(*weights.kernels),
      dim_(weights.info.dim),
      team_(team),
      workspace_(workspace),
      batch_(batch),
      input_(kernels_, team, workspace),
      shared_(weights) {
  const OperationScope scope(team, Operation::prepare);
  places_ = workspace.take<SequencePlace>(Slot::sequences, batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const SequenceRows& rows = batch[i];
    const auto count = static_cast<std::uint32_t>(rows.tokens.size());
    TROUPE_ASSERT(count >= 1 && rows.num_outputs <= count && rows.first_position + count <= weights.info.context);
    places_[i] = {.first_row = static_cast<std::uint32_t>(num_rows_),
                  .num_rows = count,
                  .first_position = rows.first_position,
                  .num_outputs = rows.num_outputs};
    num_rows_ += count;
  }
  residual_ = workspace.take<float>(Slot::residual, num_rows_ * dim_);
  delta_ = workspace.take<float>(Slot::delta, num_rows_ * dim_);
}

void LayerPass::embed(float scale) {
  const OperationScope scope(team_, Operation::embed);
  // Rows are in the order of the batch: sequence by sequence, token by token.
  std::span<TokenId> tokens = workspace_.take<TokenId>(Slot::tokens, num_rows_);
  for (std::size_t i = 0; i < batch_.size(); ++i)
    std::copy(batch_[i].tokens.begin(), batch_[i].tokens.end(), tokens.begin() + places_[i].first_row);
  for_each_row([&](std::size_t row) {
    TROUPE_ASSERT(tokens[row] >= 0 && static_cast<std::uint32_t>(tokens[row]) < shared_.info.vocab_size);
    float* x = residual_.data() + row * dim_;
    kernels::unpack_row(shared_.embedding.view(), static_cast<std::size_t>(tokens[row]), x);
    if (scale == 1.0f) return;
    for (std::size_t i = 0; i < dim_; ++i) x[i] *= scale;
  });
}

bool LayerPass::drop_rows_without_output(std::initializer_list<Kept> buffers) {
  std::size_t kept = 0;
  for (SequencePlace& place : places_) {
    const std::uint32_t skipped = place.num_rows - place.num_outputs;
    for (std::uint32_t i = 0; i < place.num_outputs; ++i) {
      const std::size_t from = place.first_row + skipped + i, to = kept + i;
      if (from == to) continue;
      std::memcpy(residual_.data() + to * dim_, residual_.data() + from * dim_, dim_ * sizeof(float));
      if (delta_pending_) std::memcpy(delta(to), delta(from), dim_ * sizeof(float));
      for (const Kept& rows : buffers)
        if (rows.width != 0)
          std::memcpy(rows.x + to * rows.stride, rows.x + from * rows.stride, rows.width * sizeof(float));
    }
    place.first_row = static_cast<std::uint32_t>(kept);
    place.first_position += skipped;
    place.num_rows = place.num_outputs;
    kept += place.num_outputs;
  }
  num_rows_ = kept;
  return kept != 0;
}

}  // namespace troupe::engine
