// gpt-oss 20B and 120B (OpenAI, 2025): a mixture of experts with biases everywhere. Every other layer, from the first
// on, has a sliding window. Each head has a sink (Xiao et al., "Efficient Streaming Language Models with Attention
// Sinks", 2024): a score that is learned and has no value. Experts are chosen first and weighted by the softmax over
// their own scores; their gate is clamped (Gate::clamped). Rotary positions on halves of a head, stretched by YaRN.
//
//   x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v) + b_o, n = norm(x)
//   x += sum over the best experts e of w_e (W_down,e gate(W_gate,e n + b, W_up,e n + b) + b_down,e),
//   w = softmax(W_router n + b) over those, n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits gpt_oss_traits() {
  return {.family = "gpt-oss",
          .ffn_input = FfnInput::post_normed,
          .qkv_biases = true,
          .biases = true,
          .half_rope = true,
          .gate = Gate::clamped,
          .experts = Experts::all,
          .normalised_experts = true,
          .sinks = true,
          .full_every = 2,
          .exact_yarn = true};
}

}  // namespace

Family gpt_oss_family() { return decoder_family<gpt_oss_traits>(); }

}  // namespace troupe::engine
