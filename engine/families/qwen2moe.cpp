// Qwen1.5 and Qwen2 as mixtures of experts (Yang et al., 2024): Qwen2's attention; besides a token's chosen experts a
// shared one with its own gate. Expert weights are the softmax over all experts.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class Qwen2MoeModel final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v), n = norm(x)
    pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v});
    pass.project_qkv(layer);
    pass.rotate_and_store();
    if (last && !pass.drop_rows_without_output()) return;
    pass.attend();
    pass.round_attention({}, layer.o);
    pass.add_projection(layer.o);
    // x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
    // w = softmax(W_router n) over all, n = norm(x);
    // and the shared expert times sigmoid(w_shared n)
    pass.norm(layer.ffn_norm, layer.moe);
    pass.add_experts(layer.moe);
  }
};

DecoderTraits traits() {
  return {.family = "qwen2moe",
          .qkv_biases = true,
          .half_rope = true,
          .experts = Experts::all,
          .divided_experts = true,
          .shared_expert = true};
}

}  // namespace

Family qwen2moe_family() { return decoder_family<Qwen2MoeModel, traits>(); }

}  // namespace troupe::engine
