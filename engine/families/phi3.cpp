// Phi-3, Phi-3.5 mini and Phi-4 (Abdin et al., 2024): a llama with q, k and v in one tensor, gate and up in another,
// rotary positions on halves of a head and LongRoPE (Ding et al., 2024) for long contexts. If a file has a window, all
// layers use it.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class Phi3Model final : public DecoderModel {
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
    // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
    pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
    pass.gate_and_up(layer.ffn, true);
    pass.round_gated({}, layer.ffn.down);
    pass.add_projection(layer.ffn.down);
  }
};

DecoderTraits traits() { return {.family = "phi3", .half_rope = true, .fused = true, .full_every = 0}; }

}  // namespace

Family phi3_family() { return decoder_family<Phi3Model, traits>(); }

}  // namespace troupe::engine
