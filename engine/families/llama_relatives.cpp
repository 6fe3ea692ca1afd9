// Families whose layer is a llama's, but for what their rows say:
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
//
//   SmolLM3 (Hugging Face, 2025): every fourth layer without rotary positions
//   InternLM 2 (Cai et al., 2024)
//   ERNIE 4.5 (Baidu, 2025), dense
//   Seed-OSS (ByteDance, 2025): biases of q, k and v; rotary positions on halves of a head
//   Hunyuan, dense (Tencent, 2025): q and k normed head by head after the rotation, which is on halves of a head
//   Ministral 3 (Mistral AI, 2025): YaRN; queries grow with the logarithm of their position
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits smollm3_traits() { return {.family = "smollm3", .biases = true, .no_rope_every = 4}; }

DecoderTraits internlm2_traits() { return {.family = "internlm2", .biases = true}; }

DecoderTraits ernie4_5_traits() { return {.family = "ernie4_5", .biases = true}; }

DecoderTraits seed_oss_traits() {
  return {.family = "seed_oss", .ffn_input = FfnInput::post_normed, .biases = true, .half_rope = true};
}

DecoderTraits hunyuan_dense_traits() {
  return {.family = "hunyuan-dense", .qk_norm = QkNorm::heads, .norms_rotated = true, .half_rope = true};
}

DecoderTraits mistral3_traits() { return {.family = "mistral3", .biases = true, .query_temperature = true}; }

}  // namespace

Family smollm3_family() { return decoder_family<smollm3_traits>(); }
Family internlm2_family() { return decoder_family<internlm2_traits>(); }
Family ernie4_5_family() { return decoder_family<ernie4_5_traits>(); }
Family seed_oss_family() { return decoder_family<seed_oss_traits>(); }
Family hunyuan_dense_family() { return decoder_family<hunyuan_dense_traits>(); }
Family mistral3_family() { return decoder_family<mistral3_traits>(); }

}  // namespace troupe::engine
