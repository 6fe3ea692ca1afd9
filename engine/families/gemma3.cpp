// Gemma 3 (Gemma Team, 2025): as Gemma 2, but q and k normed head by head instead of capped scores. Five of six layers
// have a sliding window and RoPE with a smaller base.
//
//   x += norm(W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n)), n = norm(x)
//   x += norm(W_down (gelu(W_gate n) * W_up n)), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits gemma3_traits() {
  return {.family = "gemma3",
          .post_norms = true,
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .gate = Gate::gelu,
          .scaled_embedding = true,
          .full_every = 6,
          .local_rope_base = 10000,
          .layers_of_wide_heads = 62};
}

}  // namespace

Family gemma3_family() { return decoder_family<gemma3_traits>(); }

}  // namespace troupe::engine
