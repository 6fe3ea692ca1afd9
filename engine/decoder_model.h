// What the families of decoder-only transformers share: weights, the loop over layers, and the head.
#pragma once

#include <memory>
#include <utility>

#include "engine/decoder_pass.h"
#include "engine/decoder_weights.h"
#include "engine/model.h"

namespace troupe::engine {

class DecoderModel : public Model {
 public:
  explicit DecoderModel(DecoderWeights weights) : weights_(std::move(weights)) {}

  const ModelInfo& info() const override { return weights_.info; }
  const CacheSpec& cache_spec() const override { return weights_.cache; }
  std::uint64_t weight_bytes() const override { return weights_.bytes; }
  std::uint64_t matrix_bytes() const override { return weights_.matrix_bytes; }
  std::uint64_t content_hash() const override { return weights_.content_hash; }
  PassCounts forward(Team& team, std::span<const SequenceRows> batch, KvArena& arena, Workspace& workspace,
                     float* hidden) const override;
  void head(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace, float* logits) const override;
  void head_greedy(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                   kernels::MaxAt* best) const override;

 private:
  // One layer over all rows. In the last one, rows that nobody asked for may be left out once their k
  // and v are stored.
  virtual void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const = 0;

  DecoderWeights weights_;
};

// Loads a model of type M whose file has the shape that `traits` describe.
template <class M>
Result<std::unique_ptr<Model>> load_decoder_model(const ModelFile& file, const DecoderTraits& traits,
                                                  const ModelOptions& options) {
  auto weights = load_decoder(file, traits, options);
  if (!weights) return weights.error();
  return std::unique_ptr<Model>(std::make_unique<M>(std::move(*weights)));
}

}  // namespace troupe::engine
