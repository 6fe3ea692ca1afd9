// The decoder-only transformers: one standard layer; a family's traits and its files decide which parts it has.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/layers/decoder/decoder_pass.h"
#include "engine/layers/decoder/decoder_weights.h"
#include "engine/weights/language_model.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {

// One layer serves all families; parts that LayerShape does not have are left out, and so are those without weights:
//
//   n = norm(x)
//   x += post_norm(W_o sub_norm(attention(rope(qk_norm(W_q n + b_q)), rope(qk_norm(W_k n + b_k)), W_v n + b_v)))
//        + W_out mixer(W_in n); with a gate the attention is multiplied by sigmoid(W_g n); or W_out of a recurrence
//   n = norm(x)
//   x += post_norm(W_down sub_norm(gate(W_gate n) * W_up n)), or the experts' sum in its place
class DecoderModel final : public LanguageModel {
 public:
  explicit DecoderModel(DecoderWeights weights) : weights_(std::move(weights)) {}

  PassCounts forward(Team& team, std::span<const SequenceRows> batch, const KvArenas& arenas, Workspace& workspace,
                     float* hidden) const override;
  void visit_weights(WeightVisitor& visitor) const override { weights_.visit(visitor); }

 private:
  const ModelWeights& shared() const override { return weights_; }

  DecoderWeights weights_;
};

// A family of decoder-only transformers; traits() describes its files.
template <DecoderTraits (*traits)()>
Family decoder_family() {
  static const std::string name = traits().family;
  return {.name = name,
          .accepts = [](const ModelFile& file) { return architecture_is(file, name); },
          .outline = [](const ModelFile& file,
                        const LoadOptions& options) { return outline_decoder(file, traits(), options); },
          .load = [](const ModelFile& file, const LoadOptions& options) -> Result<std::unique_ptr<Model>> {
            auto weights = load_decoder(file, traits(), options);
            if (!weights) return weights.error();
            return std::unique_ptr<Model>(std::make_unique<DecoderModel>(std::move(*weights)));
          },
          .check = [](const ModelFile& file,
                      const LoadOptions& options) { return check_decoder(file, traits(), options); }};
}

}  // namespace troupe::engine
