// Qwen3 (Yang et al., 2025): a llama with q and k normed head by head, and rotary positions on halves of a head.
//
//   x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits qwen3_traits() { return {.family = "qwen3", .qk_norm = QkNorm::heads, .half_rope = true}; }

}  // namespace

Family qwen3_family() { return decoder_family<qwen3_traits>(); }

}  // namespace troupe::engine
