// LFM2 (Liquid AI, 2025): most layers have a gated short convolution in the place of attention: those without K/V
// heads. The others norm q and k head by head. LFM2-MoE: experts behind the first layers, chosen by the sigmoid of the
// router's scores plus a bias, and weighted by the sigmoid alone.
//
//   x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n), or W_out (c * conv(b * u)) with [b, c, u] = W_in
//   n; n = norm(x) x += W_down (silu(W_gate n) * W_up n), n = norm(x) with experts: x += sum over the best experts e of
//   w_e W_down,e (silu(W_gate,e n) * W_up,e n), w = sigmoid(W_router n) over their sum
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits lfm2_traits() {
  return {.family = "lfm2",
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .without_kv = WithoutKv::short_convolution,
          .output_norm = "token_embd_norm.weight",
          .full_every = 0};
}

DecoderTraits lfm2moe_traits() {
  DecoderTraits traits = lfm2_traits();
  traits.family = "lfm2moe";
  traits.experts = Experts::all;
  traits.expert_gate = ExpertGate::sigmoid;
  traits.normalised_experts = true;
  traits.biased_choice = true;
  traits.full_every.reset();
  return traits;
}

}  // namespace

Family lfm2_family() { return decoder_family<lfm2_traits>(); }
Family lfm2moe_family() { return decoder_family<lfm2moe_traits>(); }

}  // namespace troupe::engine
