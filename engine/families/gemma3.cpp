// Gemma 3 (Gemma Team, 2025): as Gemma 2, but q and k normed head by head instead of capped scores. Five of six layers
// have a sliding window and RoPE with a smaller base.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class Gemma3Model final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += norm(W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n)), n = norm(x)
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
  return {.family = "gemma3",
          .post_norms = true,
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .gate = Gate::gelu,
          .scaled_embedding = true,
          .full_every = 6,
          .local_rope_base = 10000,
          .layers_of_wide_heads = 62};
}

}  // namespace

Family gemma3_family() { return decoder_family<Gemma3Model, traits>(); }

}  // namespace troupe::engine
