// BitNet b1.58 (Ma et al., 2024), architecture `bitnet` in GGUF: a llama with ternary matrices, a second RMSNorm before
// both output projections, rotary positions on halves of a head, and SiLU.
//
//   x += W_o norm(attention(rope(W_q n), rope(W_k n), W_v n)), n = norm(x)
//   x += W_down norm(silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits bitnet_traits() {
  return {.family = "bitnet", .sub_norms = true, .half_rope = true, .scale_tensors = true};
}

}  // namespace

Family bitnet_family() { return decoder_family<bitnet_traits>(); }

}  // namespace troupe::engine
