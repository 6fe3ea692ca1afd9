// The weights of a BERT-type encoder with llama.cpp's tensor names, and how they are read and checked.
#pragma once

#include <vector>

#include "config/result.h"
#include "engine/layers/layer_norm.h"
#include "engine/layers/rope_table.h"
#include "engine/weights/language_model.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {

// Two families share this shape. `bert` adds a learned vector for each position, has biases and one matrix before its
// GELU; `nomic-bert` uses RoPE, has no biases and gates with SiLU.
struct EncoderLayer {
  PackedMatrix q, k, v, o;
  std::vector<float> qkv_bias, o_bias;  // [3 * dim], [dim]; or empty
  LayerNormWeights attn_norm;           // after the residual addition, like ffn_norm
  PackedMatrix gate, up, down;          // gate: nomic-bert only
  std::vector<float> up_bias, down_bias;
  LayerNormWeights ffn_norm;
};

struct EncoderWeights : ModelWeights {
  float epsilon = 0;
  PackedMatrix positions;         // [trained_context, dim], or empty
  std::vector<float> token_type;  // [dim]: the vector of type 0, added to all tokens; or empty
  LayerNormWeights embedding_norm;
  std::vector<EncoderLayer> layers;
  RopeTable rope;  // or empty
};

// The longest text, in tokens, even if a file claims more: attention time grows with its square, and the activations of
// a whole text, 40 KiB per token of a base model, come on top of the memory budget.
inline constexpr std::uint32_t kMaxEncoderTokens = 8192;

// Errors: bad_model, unsupported (with the feature's name), out_of_memory, invalid_argument (context).
[[nodiscard]] Result<EncoderWeights> load_encoder(const ModelFile& file, const ModelOptions& options);

}  // namespace troupe::engine
