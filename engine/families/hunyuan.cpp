// Hunyuan, dense (Tencent, 2025): a llama with q and k normed head by head after the rotation, which is on halves of a
// head.
//
//   x += W_o attention(norm(rope(W_q n)), norm(rope(W_k n)), W_v n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits hunyuan_dense_traits() {
  return {.family = "hunyuan-dense", .qk_norm = QkNorm::heads, .norms_rotated = true, .half_rope = true};
}

}  // namespace

Family hunyuan_dense_family() { return decoder_family<hunyuan_dense_traits>(); }

}  // namespace troupe::engine
