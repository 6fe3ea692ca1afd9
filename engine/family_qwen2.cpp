// Qwen2 and Qwen2.5 (Yang et al., 2024): a llama with biases of q, k and v and rotary positions on halves of a head.
#include "engine/decoder_model.h"
#include "engine/families.h"

namespace troupe::engine {
namespace {

class Qwen2Model final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v), n = norm(x)
    pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v});
    pass.project_qkv(layer);
    pass.rotate_and_store();
    if (last && !pass.keep_only_outputs()) return;
    pass.attend();
    pass.round_attention({}, layer.o);
    pass.add_projection(layer.o);
    // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
    pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
    pass.gate_and_up(layer.ffn, true);
    pass.round_gated({}, layer.ffn.down);
    pass.add_projection(layer.ffn.down);
  }
};

}  // namespace

Family qwen2_family() {
  return {.name = "qwen2",
          .accepts = [](const ModelFile& file) { return architecture_is(file, "qwen2"); },
          .load =
              [](const ModelFile& file, const ModelOptions& options) {
                const DecoderTraits traits{.family = "qwen2", .qkv_biases = true, .half_rope = true};
                return load_decoder_model<Qwen2Model>(file, traits, options);
              }};
}

}  // namespace troupe::engine
