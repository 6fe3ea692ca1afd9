// Gemma 1 (Gemma Team, 2024): a llama with embeddings times sqrt(dim), GELU, and rotary positions on halves of a head.
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
//   x += W_down (gelu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits gemma_traits() {
  return {.family = "gemma", .half_rope = true, .gate = Gate::gelu, .scaled_embedding = true};
}

}  // namespace

Family gemma_family() { return decoder_family<gemma_traits>(); }

}  // namespace troupe::engine
