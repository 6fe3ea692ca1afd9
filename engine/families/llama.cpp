// Llama 1, 2 and 3, Mistral, TinyLlama (Touvron et al., 2023): RMSNorm before each half of a layer, rotary positions on
// neighbouring pairs, grouped-query attention, SwiGLU. Mixtral (Jiang et al., 2024): the same with experts and
// normalised expert weights. The first version of Mistral has a sliding window in every layer.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class LlamaModel final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
    pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v});
    pass.project_qkv(layer);
    pass.rotate_and_store();
    if (last && !pass.drop_rows_without_output()) return;
    pass.attend();
    pass.round_attention({}, layer.o);
    pass.add_projection(layer.o);
    if (!layer.moe.router) {
      // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
      pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
      pass.gate_and_up(layer.ffn, true);
      pass.round_gated({}, layer.ffn.down);
      pass.add_projection(layer.ffn.down);
      return;
    }
    // with experts: x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
    // w = softmax(W_router n) over those, n = norm(x)
    pass.norm(layer.ffn_norm, layer.moe);
    pass.add_experts(layer.moe);
  }
};

DecoderTraits traits() {
  return {.family = "llama", .experts = Experts::some, .normalised_experts = true, .full_every = 0};
}

}  // namespace

Family llama_family() { return decoder_family<LlamaModel, traits>(); }

}  // namespace troupe::engine
