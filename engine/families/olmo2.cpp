// OLMo 2 (OLMo Team, 2024): norms after both halves of a layer instead of before them, q and k normed over all heads at
// once, rotary positions on halves of a head. OLMo 3 (2025): the same, with a sliding window in three of four layers,
// whose positions YaRN does not scale.
//
//   x += norm(W_o attention(rope(norm(W_q x)), rope(norm(W_k x)), W_v x))
//   x += norm(W_down (silu(W_gate x) * W_up x))
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

}  // namespace

Family olmo2_family() { return decoder_family<olmo2_traits>(); }

}  // namespace troupe::engine
