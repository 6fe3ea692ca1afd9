// Llama 1, 2 and 3, Mistral, TinyLlama (Touvron et al., 2023): RMSNorm before each half of a layer, rotary positions on
// neighbouring pairs, grouped-query attention, SwiGLU. Mixtral (Jiang et al., 2024): the same with experts and
// normalised expert weights. The first version of Mistral has a sliding window in every layer.
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
//   with experts: x += sum over the best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n),
//   w = softmax(W_router n) over those, n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits llama_traits() {
  return {.family = "llama", .experts = Experts::some, .normalised_experts = true, .full_every = 0};
}

}  // namespace

Family llama_family() { return decoder_family<llama_traits>(); }

}  // namespace troupe::engine
