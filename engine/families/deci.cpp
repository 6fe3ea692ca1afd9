// DeciLM (Deci, 2023) and the models that Nvidia made of Llama 3 by searching for smaller layers (Bercovich et al.,
// "Puzzle: Distillation-Based NAS for Inference-Optimized LLMs", 2024): Llama-Nemotron 49B, 51B, 253B. Layers are
// Llama's, and differ in K/V heads and in the width of the feed-forward part. Some have no attention, one matrix in
// its place, or no feed-forward part.
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n), or W_o n, or nothing; n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), or nothing; n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits deci_traits() { return {.family = "deci", .without_kv = WithoutKv::linear}; }

}  // namespace

Family deci_family() { return decoder_family<deci_traits>(); }

}  // namespace troupe::engine
