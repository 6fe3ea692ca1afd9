// Phi-3, Phi-3.5 mini and Phi-4 (Abdin et al., 2024): a llama with q, k and v in one tensor, gate and up in another,
// rotary positions on halves of a head and LongRoPE (Ding et al., 2024) for long contexts. If a file has a window, all
// layers use it.
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits phi3_traits() { return {.family = "phi3", .half_rope = true, .fused = true, .full_every = 0}; }

}  // namespace

Family phi3_family() { return decoder_family<phi3_traits>(); }

}  // namespace troupe::engine
