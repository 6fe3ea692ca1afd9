// BitNet b1.58 2B4T (Ma et al., 2025), Microsoft's model: as `bitnet`, but with squared ReLU as gate. Its architecture
// is `bitnet-b1.58` in GGUF, `bitnet-25` in files from before its publication.
#include "engine/families/families.h"
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

class Bitnet158Model final : public DecoderModel {
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
    // x += W_down norm(max(W_gate n, 0)^2 * W_up n), n = norm(x)
    pass.norm(layer.ffn_norm, {&layer.ffn.gate, &layer.ffn.up});
    pass.gate_and_up(layer.ffn, false);
    pass.round_gated(layer.ffn_sub_norm, layer.ffn.down);
    pass.add_projection(layer.ffn.down);
  }
};

DecoderTraits traits_of(const char* name) {
  return {.family = name, .sub_norms = true, .half_rope = true, .scale_tensors = true, .gate = Gate::squared_relu};
}
DecoderTraits bitnet158() { return traits_of("bitnet-b1.58"); }
DecoderTraits bitnet25() { return traits_of("bitnet-25"); }

}  // namespace

Family bitnet158_family() { return decoder_family<Bitnet158Model, bitnet158>(); }
Family bitnet25_family() { return decoder_family<Bitnet158Model, bitnet25>(); }

}  // namespace troupe::engine
