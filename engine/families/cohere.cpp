// Command R, Aya 23 (Cohere, 2024): both halves of a layer read one layer norm, which has no biases. Logits have a
// factor. Command R+ norms each head of q and k with weights of its own.
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n) + W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits command_r_traits() {
  return {.family = "command-r",
          .layer_norms = true,
          .ffn_input = FfnInput::attn_normed,
          .qk_norm = QkNorm::own_heads,
          .biases = true,
          .logit_scale = LogitScale::multiplies};
}

}  // namespace

Family command_r_family() { return decoder_family<command_r_traits>(); }

}  // namespace troupe::engine
