// The weights of a decoder-only transformer as llama files name them, and how they are read and
// checked. Families say what they expect; everything else in a file is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/language_model.h"
#include "engine/packed_matrix.h"
#include "engine/rope_table.h"

namespace troupe::engine {

// What distinguishes the families that share this shape.
struct DecoderTraits {
  std::string family;
  bool sub_norms = false;      // norms in front of both output projections (BitNet b1.58)
  bool half_rope = false;      // rotates (i, i + rotated/2) instead of (2i, 2i+1)
  bool scale_tensors = false;  // optional "NAME.scale" of one element per matrix
};

struct DecoderLayer {
  std::vector<float> attn_norm;  // [dim]
  PackedMatrix q, k, v, o;
  std::vector<float> attn_sub_norm;  // [num_heads * head_dim], or empty
  std::vector<float> ffn_norm;       // [dim]
  PackedMatrix gate, up, down;
  std::vector<float> ffn_sub_norm;  // [ffn_dim], or empty
};

struct DecoderWeights : ModelWeights {
  std::vector<DecoderLayer> layers;
  RopeTable rope;
};

// Reads, checks and packs. The file's pages are dropped tensor by tensor. Errors: bad_model,
// unsupported (names what), out_of_memory, invalid_argument (context).
[[nodiscard]] Result<DecoderWeights> load_decoder(const ModelFile& file, const DecoderTraits& traits,
                                                  const ModelOptions& options);

// The metadata part of it: sizes, checked against each other but not yet against tensors.
struct DecoderShape {
  ModelInfo info;
  RopeParams rope;  // without factors
};
[[nodiscard]] Result<DecoderShape> read_decoder_shape(const ModelFile& file, const DecoderTraits& traits,
                                                      const ModelOptions& options);

}  // namespace troupe::engine
