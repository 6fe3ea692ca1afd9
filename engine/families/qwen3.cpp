// Qwen3 (Yang et al., 2025): a llama with q and k normed head by head, and rotary positions on halves of a head.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class Qwen3Model final : public DecoderModel {
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
    // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
    pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
    pass.gate_and_up(layer.ffn, true);
    pass.round_gated({}, layer.ffn.down);
    pass.add_projection(layer.ffn.down);
  }
};

DecoderTraits traits() { return {.family = "qwen3", .qk_norm = QkNorm::heads, .half_rope = true}; }

}  // namespace

Family qwen3_family() { return decoder_family<Qwen3Model, traits>(); }

}  // namespace troupe::engine
