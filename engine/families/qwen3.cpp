// Qwen3 (Yang et al., 2025): a llama with q and k normed head by head, and rotary positions on halves of a head. As a
// mixture of experts: the weights of a token's experts add up to 1.
//
//   x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x); with experts
//   x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
//   w = softmax(W_router n) over those
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits qwen3_traits() { return {.family = "qwen3", .qk_norm = QkNorm::heads, .half_rope = true}; }

DecoderTraits qwen3moe_traits() {
  DecoderTraits traits = qwen3_traits();
  traits.family = "qwen3moe";
  traits.experts = Experts::all;
  traits.normalised_experts = true;
  traits.divided_experts = true;
  return traits;
}

}  // namespace

Family qwen3_family() { return decoder_family<qwen3_traits>(); }
Family qwen3moe_family() { return decoder_family<qwen3moe_traits>(); }

}  // namespace troupe::engine
