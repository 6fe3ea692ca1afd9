// Qwen3 as a mixture of experts (Yang et al., 2025): Qwen3's attention, and expert weights that add up to 1.
//
//   x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n), n = norm(x)
//   x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
//   w = softmax(W_router n) over those, n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits qwen3moe_traits() {
  return {.family = "qwen3moe",
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .experts = Experts::all,
          .normalised_experts = true,
          .divided_experts = true};
}

}  // namespace

Family qwen3moe_family() { return decoder_family<qwen3moe_traits>(); }

}  // namespace troupe::engine
