// Families with factors that keep the sizes of activations alike in models of any width and depth (Yang et al., 2022).
//
//   x = e * embedding
//   x += r * W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x); scores times a
//   x += r * W_down (silu(W_gate n) * W_up n), n = norm(x)
//   logits = W norm(x) / l
//
//   Granite 3 and 4 (IBM, 2024), dense: all four are in the file; some have no rotary positions
//   MiniCPM 1B and 2B (Hu et al., 2024): the first files have none of them
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits granite_traits() {
  return {.family = "granite", .biases = true, .scales = true, .logit_scale = LogitScale::divides, .rope_switch = true};
}

DecoderTraits minicpm_traits() {
  return {
      .family = "minicpm", .biases = true, .scales = true, .logit_scale = LogitScale::divides, .minicpm_scales = true};
}

}  // namespace

Family granite_family() { return decoder_family<granite_traits>(); }
Family minicpm_family() { return decoder_family<minicpm_traits>(); }

}  // namespace troupe::engine
