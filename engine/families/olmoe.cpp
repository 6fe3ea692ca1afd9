// OLMoE (Muennighoff et al., 2024): a mixture of experts with q and k normed over all heads at once, and rotary
// positions on halves of a head. A token's weights are those of the softmax over all experts.
//
//   x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n), n = norm(x)
//   x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
//   w = softmax(W_router n) over all, n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits olmoe_traits() {
  return {.family = "olmoe", .qk_norm = QkNorm::rows, .half_rope = true, .experts = Experts::all};
}

}  // namespace

Family olmoe_family() { return decoder_family<olmoe_traits>(); }

}  // namespace troupe::engine
