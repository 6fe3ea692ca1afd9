// Base of the decoder-only transformer families: weights and the loop over layers.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/layers/decoder_pass.h"
#include "engine/layers/decoder_weights.h"
#include "engine/weights/language_model.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {

class DecoderModel : public LanguageModel {
 public:
  explicit DecoderModel(DecoderWeights weights) : weights_(std::move(weights)) {}

  PassCounts forward(Team& team, std::span<const SequenceRows> batch, const CacheMemory& memory, Workspace& workspace,
                     float* hidden) const override;

 private:
  const ModelWeights& shared() const override { return weights_; }
  // Runs one layer over all rows. The last layer may drop rows without output once their k and v are stored.
  virtual void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const = 0;

  DecoderWeights weights_;
};

// The family of models of type M; traits() describes their files.
template <class M, DecoderTraits (*traits)()>
Family decoder_family() {
  static const std::string name = traits().family;
  return {.name = name,
          .accepts = [](const ModelFile& file) { return architecture_is(file, name); },
          .outline = [](const ModelFile& file,
                        const ModelOptions& options) { return outline_decoder(file, traits(), options); },
          .load = [](const ModelFile& file, const ModelOptions& options) -> Result<std::unique_ptr<Model>> {
            auto weights = load_decoder(file, traits(), options);
            if (!weights) return weights.error();
            return std::unique_ptr<Model>(std::make_unique<M>(std::move(*weights)));
          }};
}

}  // namespace troupe::engine
