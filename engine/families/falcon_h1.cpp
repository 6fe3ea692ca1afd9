// Falcon-H1 (Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models", 2025): each layer has attention and a
// Mamba-2 mixer side by side on one norm, then a feed-forward part. Its multipliers are in the matrices.
//
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n) + W_out mixer(W_in n), n = norm(x)
//   x += W_down (silu(W_gate n) * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits falcon_h1_traits() { return {.family = "falcon-h1", .half_rope = true, .mamba2 = true}; }

}  // namespace

Family falcon_h1_family() { return decoder_family<falcon_h1_traits>(); }

}  // namespace troupe::engine
