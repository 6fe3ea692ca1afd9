// Gemma 2 (Gemma Team, 2024): embeddings times sqrt(dim), norms before and after each half of a layer, GELU, caps of
// scores and of logits. Every other layer, from the first on, has a sliding window.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class Gemma2Model final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += norm(W_o attention(rope(W_q n), rope(W_k n), W_v n)), n = norm(x); scores are capped
    pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v});
    pass.project_qkv(layer);
    pass.rotate_and_store();
    if (last && !pass.drop_rows_without_output()) return;
    pass.attend();
    pass.round_attention({}, layer.o);
    pass.add_projection(layer.o, layer.attn_post_norm);
    // x += norm(W_down (gelu(W_gate n) * W_up n)), n = norm(x)
    pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
    pass.gate_and_up(layer.ffn, true);
    pass.round_gated({}, layer.ffn.down);
    pass.add_projection(layer.ffn.down, layer.ffn_post_norm);
  }
};

DecoderTraits traits() {
  return {.family = "gemma2",
          .post_norms = true,
          .half_rope = true,
          .gate = Gate::gelu,
          .scaled_embedding = true,
          .attention_cap = 50,
          .logit_cap = 30,
          .full_every = 2,
          .window = 4096,
          .layers_of_wide_heads = 46};
}

}  // namespace

Family gemma2_family() { return decoder_family<Gemma2Model, traits>(); }

}  // namespace troupe::engine
