// The weights of a BERT-type encoder with llama.cpp's tensor names, and how they are read and checked.
#pragma once

#include <vector>

#include "config/result.h"
#include "engine/layers/rope_table.h"
#include "engine/weights/language_model.h"
#include "engine/weights/layer_norm.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {

// Two families share this shape. `bert` adds a learned vector for each position, has biases and one matrix before its
// GELU; `nomic-bert` uses RoPE, has no biases and gates with SiLU.
struct EncoderLayer {
  PackedMatrix q, k, v, o;
  // [3 * dim], [dim]; or empty. With int8 K and V the first is that of q alone, [dim]: such values are stored without
  // their biases. K's, which nothing rotates, adds the same to all scores of a row, so it has no effect.
  std::vector<float> qkv_bias, o_bias;
  std::vector<float> value_bias;  // [dim], added to the results of attention; or empty: none, or within qkv_bias
  LayerNormWeights attn_norm;     // after the residual addition, like ffn_norm
  PackedMatrix gate, up, down;    // gate: nomic-bert only
  std::vector<float> up_bias, down_bias;
  LayerNormWeights ffn_norm;

  void visit(WeightVisitor& visitor) const {
    visitor.all(q, k, v, o, qkv_bias, o_bias, value_bias, attn_norm, gate, up, down, up_bias, down_bias, ffn_norm);
  }
};

struct EncoderWeights : ModelWeights {
  float epsilon = 0;
  PackedMatrix positions;         // [trained_context, dim], or empty
  std::vector<float> token_type;  // [dim]: the vector of type 0, added to all tokens; or empty
  LayerNormWeights embedding_norm;
  std::vector<EncoderLayer> layers;
  RopeTable rope;  // or empty

  void visit(WeightVisitor& visitor) const {
    ModelWeights::visit(visitor);
    visitor.all(positions, token_type, embedding_norm, layers, rope);
  }
};

// The longest text, in tokens, even if a file claims more: attention time grows with its square, and the activations of
// a whole text, 40 KiB per token of a base model, come on top of the memory budget.
inline constexpr std::uint32_t kMaxEncoderTokens = 8192;

// The errors of load_encoder that metadata can show; that the directory of tensors can show. `options`: the context.
[[nodiscard]] Status check_encoder(const ModelFile& file, const LoadOptions& options);
[[nodiscard]] Status check_encoder_tensors(const ModelFile& file, const LoadOptions& options);

// Errors: bad_model, unsupported (with the feature's name), out_of_memory, invalid_argument (context).
[[nodiscard]] Result<EncoderWeights> load_encoder(const ModelFile& file, const LoadOptions& options);

}  // namespace troupe::engine
