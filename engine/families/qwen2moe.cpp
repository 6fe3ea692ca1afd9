// Qwen1.5 and Qwen2 as mixtures of experts (Yang et al., 2024): Qwen2's attention; besides a token's chosen experts a
// shared one with its own gate. Expert weights are the softmax over all experts.
//
//   x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v), n = norm(x)
//   x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
//   w = softmax(W_router n) over all, n = norm(x);
//   and the shared expert times sigmoid(w_shared n)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits qwen2moe_traits() {
  return {.family = "qwen2moe",
          .qkv_biases = true,
          .half_rope = true,
          .experts = Experts::all,
          .divided_experts = true,
          .shared_expert = true};
}

}  // namespace

Family qwen2moe_family() { return decoder_family<qwen2moe_traits>(); }

}  // namespace troupe::engine
