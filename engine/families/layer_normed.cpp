// Families with layer norms that have biases, and rotary positions on halves of a head, or of a part of it.
//
//   StarCoder 2 (Lozhkov et al., 2024): biases of all matrices, no gate
//   x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v) + b_o, n = norm(x)
//   x += W_down gelu(W_up n + b_up) + b_down, n = norm(x)
//
//   Phi-1, Phi-1.5 and Phi-2 (Li et al., 2023): the same, with both halves on one norm, and biases of the logits
//
//   StableLM 2 (Bellagamba et al., 2024): biases of q, k and v at most. In the 12B both halves read one norm, and each
//   head of q and k is normed with weights of its own.
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits starcoder2_traits() {
  return {.family = "starcoder2",
          .layer_norms = true,
          .norm_biases = true,
          .biases = true,
          .half_rope = true,
          .ungated = true};
}

DecoderTraits phi2_traits() {
  return {.family = "phi2",
          .layer_norms = true,
          .norm_biases = true,
          .ffn_input = FfnInput::attn_normed,
          .biases = true,
          .half_rope = true,
          .ungated = true};
}

DecoderTraits stablelm_traits() {
  return {.family = "stablelm",
          .layer_norms = true,
          .norm_biases = true,
          .ffn_input = FfnInput::optional,
          .qk_norm = QkNorm::own_heads,
          .half_rope = true};
}

}  // namespace

Family starcoder2_family() { return decoder_family<starcoder2_traits>(); }
Family phi2_family() { return decoder_family<phi2_traits>(); }
Family stablelm_family() { return decoder_family<stablelm_traits>(); }

}  // namespace troupe::engine
