// Gemma 2 (Gemma Team, 2024): embeddings times sqrt(dim), norms before and after each half of a layer, GELU, caps of
// scores and of logits. Every other layer, from the first on, has a sliding window.
//
//   x += norm(W_o attention(rope(W_q n), rope(W_k n), W_v n)), n = norm(x); scores are capped
//   x += norm(W_down (gelu(W_gate n) * W_up n)), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits gemma2_traits() {
  return {.family = "gemma2",
          .post_norms = true,
          .half_rope = true,
          .gate = Gate::gelu,
          .scaled_embedding = true,
          .attention_cap = 50,
          .logit_cap = 30,
          .full_every = 2,
          .window = 4096,
          .layers_of_wide_heads = 46};
}

}  // namespace

Family gemma2_family() { return decoder_family<gemma2_traits>(); }

}  // namespace troupe::engine
