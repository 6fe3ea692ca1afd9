#include "engine/decoder_model.h"

namespace troupe::engine {

PassCounts DecoderModel::forward(Team& team, std::span<const SequenceRows> batch, KvArena& arena, Workspace& workspace,
                                 float* hidden) const {
  DecoderPass pass(weights_, team, batch, arena, workspace);
  pass.embed();
  for (std::uint32_t i = 0; i < weights_.layers.size(); ++i) {
    pass.begin_layer(i);
    run_layer(pass, weights_.layers[i], i + 1 == weights_.layers.size());
  }
  pass.finish(weights_.output_norm, hidden);
  return {.kv_bytes_read = pass.kv_bytes_read()};
}

void DecoderModel::head(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                        float* logits) const {
  const OperationScope scope(team, Operation::head);
  const PackedMatrix& matrix = weights_.head_matrix();
  RoundedRows input(*weights_.kernels, team, workspace);
  input.reset(num_rows, {&matrix});
  input.set_rows(0, num_rows, hidden, matrix.k());
  input.multiply({{&matrix, logits, matrix.rows()}});
}

}  // namespace troupe::engine
