#include "engine/decoder_model.h"

namespace troupe::engine {

void DecoderModel::forward(Team& team, std::span<const SequenceRows> batch, KvArena& arena, Workspace& workspace,
                           float* hidden) const {
  DecoderPass pass(weights_, team, batch, arena, workspace);
  pass.embed();
  for (const DecoderLayer& layer : weights_.layers) run_layer(pass, layer, &layer == &weights_.layers.back());
  pass.finish(weights_.output_norm, hidden);
}

void DecoderModel::head(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                        float* logits) const {
  const PackedMatrix& matrix = weights_.head_matrix();
  RoundedRows input(*weights_.kernels, team, workspace);
  input.reset(num_rows, {&matrix});
  for (std::size_t row = 0; row < num_rows; ++row) input.set_row(row, hidden + row * matrix.k());
  input.multiply({{&matrix, logits, matrix.rows()}});
}

}  // namespace troupe::engine
