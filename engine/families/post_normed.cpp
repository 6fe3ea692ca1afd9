// Families with norms after both halves of a layer instead of before them, and rotary positions on halves of a head:
//
//   x += norm(W_o attention(rope(norm(W_q x)), rope(norm(W_k x)), W_v x))
//   x += norm(W_down (silu(W_gate x) * W_up x))
//
//   OLMo 2 (OLMo Team, 2024): q and k normed over all heads at once. OLMo 3 (2025): the same, with a sliding window in
//   three of four layers, whose positions YaRN does not scale
//   EXAONE 4 (LG AI Research, 2025): q and k normed head by head. In the 32B three of four layers have a sliding
//   window, and the others see everything and have no rotary positions
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits olmo2_traits() {
  return {.family = "olmo2",
          .post_norms = true,
          .no_pre_norms = true,
          .qk_norm = QkNorm::rows,
          .half_rope = true,
          .full_every = 4,
          .plain_local_rope = true};
}

DecoderTraits exaone4_traits() {
  return {.family = "exaone4",
          .post_norms = true,
          .no_pre_norms = true,
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .full_every = 4,
          .rope_in_local_only = true};
}

}  // namespace

Family olmo2_family() { return decoder_family<olmo2_traits>(); }
Family exaone4_family() { return decoder_family<exaone4_traits>(); }

}  // namespace troupe::engine
