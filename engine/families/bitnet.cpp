// BitNet b1.58 (Ma et al., 2024), architecture `bitnet` in GGUF: a llama with ternary matrices, a second RMSNorm before
// both output projections, rotary positions on halves of a head, and SiLU.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class BitnetModel final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += W_o norm(attention(rope(W_q n), rope(W_k n), W_v n)), n = norm(x)
    pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v});
    pass.project_qkv(layer);
    pass.rotate_and_store();
    if (last && !pass.drop_rows_without_output()) return;
    pass.attend();
    pass.round_attention(layer.attn_sub_norm, layer.o);
    pass.add_projection(layer.o);
    // x += W_down norm(silu(W_gate n) * W_up n), n = norm(x)
    pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
    pass.gate_and_up(layer.ffn, false);
    pass.round_gated(layer.ffn_sub_norm, layer.ffn.down);
    pass.add_projection(layer.ffn.down);
  }
};

DecoderTraits traits() { return {.family = "bitnet", .sub_norms = true, .half_rope = true, .scale_tensors = true}; }

}  // namespace

Family bitnet_family() { return decoder_family<BitnetModel, traits>(); }

}  // namespace troupe::engine
