// The families of decoder-only transformers: each is the standard layer of engine/model/decoder_model.h with the parts
// that its traits name. Formulas are of one layer. In all of them n = norm(x), with the norm of that half of the layer,
// and these words stand for
//
//   attention   x += W_o attention(rope(W_q n), rope(W_k n), W_v n)
//   SwiGLU      x += W_down (silu(W_gate n) * W_up n)
//   experts     x += sum over a token's best experts e of w_e W_down,e (silu(W_gate,e n) * W_up,e n), w from a softmax
//               of W_router n
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

// Llama 1, 2 and 3, Mistral, TinyLlama (Touvron et al., 2023): attention with grouped queries and rotary positions on
// neighbouring pairs, SwiGLU, RMSNorm before each. Mixtral (Jiang et al., 2024): the same with experts; w is the
// softmax over the chosen ones. The first version of Mistral has a sliding window in every layer.
DecoderTraits llama() {
  return {.family = "llama", .experts = Experts::some, .normalised_experts = true, .full_every = 0};
}

// Qwen2 and Qwen2.5 (Yang et al., 2024): a llama with biases of q, k and v and rotary positions on halves of a head.
//
//   x += W_o attention(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v)
DecoderTraits qwen2() { return {.family = "qwen2", .qkv_biases = true, .half_rope = true}; }

// Qwen1.5 and Qwen2 as mixtures of experts (Yang et al., 2024): Qwen2's attention; w is the softmax over all experts.
// Besides a token's chosen experts a shared one is added, times sigmoid(w_shared n).
DecoderTraits qwen2moe() {
  return {.family = "qwen2moe",
          .qkv_biases = true,
          .half_rope = true,
          .experts = Experts::all,
          .divided_experts = true,
          .shared_expert = true};
}

// Qwen3 (Yang et al., 2025): a llama with q and k normed head by head, and rotary positions on halves of a head.
//
//   x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n)
DecoderTraits qwen3() { return {.family = "qwen3", .qk_norm = QkNorm::heads, .half_rope = true}; }

// Qwen3 as a mixture of experts (Yang et al., 2025): Qwen3's attention; w is the softmax over the chosen experts.
DecoderTraits qwen3moe() {
  return {.family = "qwen3moe",
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .experts = Experts::all,
          .normalised_experts = true,
          .divided_experts = true};
}

// Phi-3, Phi-3.5 mini and Phi-4 (Abdin et al., 2024): a llama with q, k and v in one tensor, gate and up in another,
// rotary positions on halves of a head and LongRoPE (Ding et al., 2024) for long contexts. If a file has a window, all
// layers use it.
DecoderTraits phi3() { return {.family = "phi3", .half_rope = true, .fused = true, .full_every = 0}; }

// Gemma 2 (Gemma Team, 2024): embeddings times sqrt(dim), norms before and after each half of a layer, GELU, caps of
// scores and of logits. Every other layer, from the first on, has a sliding window.
//
//   x += norm(W_o attention(rope(W_q n), rope(W_k n), W_v n)); scores are capped
//   x += norm(W_down (gelu(W_gate n) * W_up n))
DecoderTraits gemma2() {
  return {.family = "gemma2",
          .post_norms = true,
          .half_rope = true,
          .gate = Gate::gelu,
          .scaled_embedding = true,
          .attention_cap = 50,
          .logit_cap = 30,
          .full_every = 2,
          .window = 4096,
          .layers_of_wide_heads = 46};
}

// Gemma 3 (Gemma Team, 2025): as Gemma 2, but q and k normed head by head instead of capped scores. Five of six layers
// have a sliding window and RoPE with a smaller base.
//
//   x += norm(W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n))
DecoderTraits gemma3() {
  return {.family = "gemma3",
          .post_norms = true,
          .qk_norm = QkNorm::heads,
          .half_rope = true,
          .gate = Gate::gelu,
          .scaled_embedding = true,
          .full_every = 6,
          .local_rope_base = 10000,
          .layers_of_wide_heads = 62};
}

// OLMoE (Muennighoff et al., 2024): a mixture of experts with q and k normed over all heads at once, and rotary
// positions on halves of a head; w is the softmax over all experts.
DecoderTraits olmoe() {
  return {.family = "olmoe", .qk_norm = QkNorm::rows, .half_rope = true, .experts = Experts::all};
}

// BitNet b1.58 (Ma et al., 2024): a llama with ternary matrices, a second RMSNorm before both output projections,
// rotary positions on halves of a head, and SiLU.
//
//   x += W_o norm(attention(rope(W_q n), rope(W_k n), W_v n))
//   x += W_down norm(silu(W_gate n) * W_up n)
DecoderTraits bitnet() { return {.family = "bitnet", .sub_norms = true, .half_rope = true, .scale_tensors = true}; }

// BitNet b1.58 2B4T (Ma et al., 2025), Microsoft's model: as `bitnet`, but with squared ReLU as gate.
//
//   x += W_down norm(max(W_gate n, 0)^2 * W_up n)
DecoderTraits bitnet158() {
  DecoderTraits traits = bitnet();
  traits.family = "bitnet-b1.58";
  traits.gate = Gate::squared_relu;
  return traits;
}

// The same in files from before its publication.
DecoderTraits bitnet25() {
  DecoderTraits traits = bitnet158();
  traits.family = "bitnet-25";
  return traits;
}

// Falcon-H1 (Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models", 2025): each layer has attention and a
// Mamba-2 mixer side by side on one norm, then SwiGLU. Its multipliers are in the matrices.
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n) + W_out mixer(W_in n)
DecoderTraits falcon_h1() { return {.family = "falcon-h1", .half_rope = true, .mamba2 = true}; }

}  // namespace

std::vector<Family> transformer_families() {
  return {decoder_family<llama>(),    decoder_family<qwen2>(),  decoder_family<qwen2moe>(),  decoder_family<qwen3>(),
          decoder_family<qwen3moe>(), decoder_family<phi3>(),   decoder_family<gemma2>(),    decoder_family<gemma3>(),
          decoder_family<olmoe>(),    decoder_family<bitnet>(), decoder_family<bitnet158>(), decoder_family<bitnet25>(),
          decoder_family<falcon_h1>()};
}

}  // namespace troupe::engine
