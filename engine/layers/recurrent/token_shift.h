// Token shift of the RWKV families, which mixes each row with the one before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/formats/metadata.h"
#include "engine/layers/recurrent/recurrent_pass.h"
#include "engine/weights/layer_norm.h"

namespace troupe::engine {

struct RwkvShape {
  std::uint32_t dim = 0;
  std::uint32_t head_size = 0;
  float epsilon = 0;  // of the layer norms

  std::uint32_t num_heads() const { return dim / head_size; }
  // Exact: the last normed input rows of time mixing and of channel mixing; large: the heads' matrices.
  StateLayout state_layout(std::uint32_t num_layers) const {
    return {.exact_per_layer = 2 * std::uint64_t{dim},
            .large_per_layer = std::uint64_t{dim} * head_size,
            .num_layers = num_layers};
  }
};
[[nodiscard]] RwkvShape read_rwkv_shape(Metadata& meta, const ModelInfo& info);

enum class Shift : std::uint8_t { time_mix, channel_mix };

// One half of a layer.
struct HalfLayer {
  const kernels::KernelTable& kernels;
  const RwkvShape& shape;
  const StateLayout& states;
  std::uint32_t layer;
  Shift half;
};

// The normed rows of one half of a layer, each with the row before it in its sequence.
class ShiftedRows {
 public:
  // Adds a pending projection to the residual, and norms it.
  ShiftedRows(RecurrentPass& pass, const HalfLayer& half, const LayerNormWeights& norm);
  // Copies the last rows to the states, and those after which states are kept. Called once all rows are mixed.
  void keep_last();

  const float* row(std::size_t row) const { return rows_ + row * half_.shape.dim; }
  // The row before it; for the first row of a sequence, the row in its state.
  const float* before(std::size_t row) const { return before_[row]; }
  // Multiplies with row + (before - row) * mix as input.
  void multiply(const std::vector<float>& mix, std::initializer_list<Product> products) const;
  // out = row + (before - row) * mix, all rows.
  void mix(const std::vector<float>& mix, float* out) const;

 private:
  float* last_row(float* state) const;
  void mix_row(std::size_t row, const std::vector<float>& mix, float* out) const;

  RecurrentPass& pass_;
  const HalfLayer half_;
  float* rows_;
  std::span<const float*> before_;
};

}  // namespace troupe::engine
