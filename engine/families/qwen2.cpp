// Qwen2 and Qwen2.5 (Yang et al., 2024): a llama with biases of q, k and v and rotary positions on halves of a head.
//
//   x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits qwen2_traits() { return {.family = "qwen2", .qkv_biases = true, .half_rope = true}; }

}  // namespace

Family qwen2_family() { return decoder_family<qwen2_traits>(); }

}  // namespace troupe::engine
