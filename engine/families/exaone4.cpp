// EXAONE 4 (LG AI Research, 2025): norms after both halves of a layer instead of before them, q and k normed head by head,
// rotary positions on halves of a head. In the 32B three of four layers have a sliding window, and the others see
// everything and have no rotary positions.
//
//   x += norm(W_o attention(rope(norm(W_q x)), rope(norm(W_k x)), W_v x))
//   x += norm(W_down (silu(W_gate x) * W_up x))
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

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

Family exaone4_family() { return decoder_family<exaone4_traits>(); }

}  // namespace troupe::engine
