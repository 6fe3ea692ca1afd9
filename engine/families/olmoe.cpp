// OLMoE (Muennighoff et al., 2024): a mixture of experts with q and k normed over all heads at once, and rotary
// positions on halves of a head. A token's weights are those of the softmax over all experts.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class OlmoeModel final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n), n = norm(x)
    pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v});
    pass.project_qkv(layer);
    pass.rotate_and_store();
    if (last && !pass.drop_rows_without_output()) return;
    pass.attend();
    pass.round_attention({}, layer.o);
    pass.add_projection(layer.o);
    // x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
    // w = softmax(W_router n) over all, n = norm(x)
    pass.norm(layer.ffn_norm, layer.moe);
    pass.add_experts(layer.moe);
  }
};

DecoderTraits traits() {
  return {.family = "olmoe", .qk_norm = QkNorm::rows, .half_rope = true, .experts = Experts::all};
}

}  // namespace

Family olmoe_family() { return decoder_family<OlmoeModel, traits>(); }

}  // namespace troupe::engine
