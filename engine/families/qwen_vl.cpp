// The text of Qwen2-VL, Qwen2.5-VL (Wang et al., 2024) and Qwen3-VL (Qwen Team, 2025): Qwen2 and Qwen3 whose pairs of a
// head are rotated by time, height or width. Text has one position for all three, so this is the rotation of Qwen2. The
// encoders of pictures are files of their own and not read.
//
//   x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v), n = norm(x); qwen3vl: norms of heads, no
//   biases x += W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits qwen2vl_traits() { return {.family = "qwen2vl", .qkv_biases = true, .half_rope = true, .mrope = true}; }

DecoderTraits qwen3vl_traits() {
  return {.family = "qwen3vl", .qk_norm = QkNorm::heads, .half_rope = true, .mrope = true};
}

}  // namespace

Family qwen2vl_family() { return decoder_family<qwen2vl_traits>(); }
Family qwen3vl_family() { return decoder_family<qwen3vl_traits>(); }

}  // namespace troupe::engine
