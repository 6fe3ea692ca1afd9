// Command R, Aya 23 (Cohere, 2024): both halves of a layer read one layer norm, which has no biases. Logits have a
// factor. Command R+ norms each head of q and k with weights of its own. Command R7B, Command A (2025), architecture
// cohere2: three of four layers have a sliding window, the others see everything and have no rotary positions.
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

DecoderTraits cohere2_traits() {
  return {.family = "cohere2",
          .layer_norms = true,
          .ffn_input = FfnInput::attn_normed,
          .biases = true,
          .logit_scale = LogitScale::multiplies,
          .full_every = 4,
          .window = 4096,
          .rope_in_local_only = true};
}

}  // namespace

Family command_r_family() { return decoder_family<command_r_traits>(); }

Family cohere2_family() { return decoder_family<cohere2_traits>(); }

}  // namespace troupe::engine
