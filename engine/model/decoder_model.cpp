#include "engine/model/decoder_model.h"

namespace troupe::engine {

PassCounts DecoderModel::forward(Team& team, std::span<const SequenceRows> batch, const CacheMemory& memory,
                                 Workspace& workspace, float* hidden) const {
  DecoderPass pass(weights_, team, batch, memory, workspace);
  pass.embed();
  for (std::uint32_t i = 0; i < weights_.layers.size(); ++i) {
    pass.begin_layer(i);
    run_layer(pass, weights_.layers[i], i + 1 == weights_.layers.size());
  }
  pass.finish(weights_.output_norm, hidden);
  return {.kv_bytes_read = pass.kv_bytes_read()};
}

}  // namespace troupe::engine
