// Falcon-H1 (Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models", 2025): each layer has attention and a
// Mamba-2 mixer side by side on one norm, then a feed-forward part. Its multipliers are in the matrices.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class FalconH1Model final : public DecoderModel {
 public:
  using DecoderModel::DecoderModel;

 private:
  void run_layer(DecoderPass& pass, const DecoderLayer& layer, bool last) const override {
    // x += W_o attention(rope(W_q n), rope(W_k n), W_v n) + W_out mixer(W_in n), n = norm(x)
    pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v, &layer.mixer.in});
    pass.project_qkv(layer);
    pass.run_mixer(layer);
    pass.rotate_and_store();
    if (last && !pass.drop_rows_without_output()) return;
    pass.attend();
    pass.round_attention({}, layer.o);
    pass.add_projection(layer.o);
    pass.add_mixer(layer);
    // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
    pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
    pass.gate_and_up(layer.ffn, true);
    pass.round_gated({}, layer.ffn.down);
    pass.add_projection(layer.ffn.down);
  }
};

DecoderTraits traits() { return {.family = "falcon-h1", .half_rope = true, .mamba2 = true}; }

}  // namespace

Family falcon_h1_family() { return decoder_family<FalconH1Model, traits>(); }

}  // namespace troupe::engine
