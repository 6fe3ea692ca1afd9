// Qwen3-Next (Qwen, 2025), and Qwen3.5 (Qwen, 2026) with experts or without. Three layers of four have a gated delta
// net in the place of attention; the others have attention with a gate, and rotate a part of each head. Qwen3-Next and
// Qwen3.5-MoE: besides a token's chosen experts a shared one with its own gate. Layers behind the last one, which
// predict further tokens, are not read.
//
//   x += W_o (sigmoid(W_g n) attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n)), n = norm(x); or
//   x += W_out (norm(delta rule(conv(W_qkv n), W_beta n, W_alpha n)) * silu(W_z n)), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x); with experts as qwen3moe, and
//   the shared expert times sigmoid(w_shared n)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits qwen35_traits() {
  return {.family = "qwen35",
          .ffn_input = FfnInput::post_normed,
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .mrope = true,
          .gated_attention = true,
          .delta_nets = DeltaNets::tiled,
          .further_layers = true};
}

DecoderTraits qwen35moe_traits() {
  DecoderTraits traits = qwen35_traits();
  traits.family = "qwen35moe";
  traits.experts = Experts::all;
  traits.normalised_experts = true;
  traits.divided_experts = true;
  traits.shared_expert = true;
  return traits;
}

DecoderTraits qwen3next_traits() {
  DecoderTraits traits = qwen35moe_traits();
  traits.family = "qwen3next";
  traits.mrope = false;
  traits.delta_nets = DeltaNets::grouped;
  return traits;
}

}  // namespace

Family qwen3next_family() { return decoder_family<qwen3next_traits>(); }
Family qwen35_family() { return decoder_family<qwen35_traits>(); }
Family qwen35moe_family() { return decoder_family<qwen35moe_traits>(); }

}  // namespace troupe::engine
