// The mixers of Mamba and Mamba-2, for purely recurrent families and for those that also have attention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/formats/metadata.h"
#include "engine/layers/recurrent/recurrent_pass.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {

struct MambaShape {
  bool has_heads = false;  // Mamba-2
  std::uint32_t conv_width = 0;
  std::uint32_t inner = 0;  // channels
  std::uint32_t state_size = 0;
  std::uint32_t num_heads = 0;   // Mamba-2: heads; Mamba: the rank of time steps
  std::uint32_t num_groups = 1;  // Mamba-2: groups of heads that share b and c
  float norm_epsilon = 0;        // Mamba: of Falcon-Mamba's norms of time steps, b and c; 0: there are none

  std::uint32_t head_dim() const { return inner / num_heads; }
  std::uint32_t bc_dim() const { return num_groups * state_size; }
  // The channels of the convolution: x, in Mamba-2 also b and c.
  std::uint32_t num_convolved() const { return inner + (has_heads ? 2 * bc_dim() : 0); }
  // Exact: the last inputs of the convolution.
  StateLayout state_layout(std::uint32_t num_layers) const {
    return {.exact_per_layer = std::uint64_t{conv_width - 1} * num_convolved(),
            .large_per_layer = std::uint64_t{inner} * state_size,
            .num_layers = num_layers};
  }
};

// Reads `PREFIX.ssm.*`; `has_heads`: with the keys of Mamba-2.
[[nodiscard]] MambaShape read_mamba_shape(Metadata& meta, bool has_heads);

// Mamba (Gu and Dao, 2023), and Falcon-Mamba (Zuo et al., "Falcon Mamba: The First Competitive Attention-free 7B
// Language Model", 2024).
struct MambaLayer {
  PackedMatrix in;                     // [x, z]
  std::vector<float> conv, conv_bias;  // [width][inner], [inner]
  PackedMatrix x;                      // [time steps of low rank, b, c]
  PackedMatrix dt;
  std::vector<float> dt_bias, a, skip;  // a [inner / 16][state][16]
  PackedMatrix out;

  void visit(WeightVisitor& visitor) const { visitor.all(in, conv, conv_bias, x, dt, dt_bias, a, skip, out); }
};
class MambaMixer {
 public:
  static constexpr bool kHasHeads = false;
  using Layer = MambaLayer;
  static Layer read(TensorReader& in, const std::string& prefix, const MambaShape& shape, std::uint32_t dim);

  MambaMixer(const MambaShape& shape, const StateLayout& states, const kernels::KernelTable& kernels);
  // Runs the mixer of layer `index` on normed rows x [rows, dim]. Returns the input of `layer.out`, [rows, inner].
  float* run(RecurrentPass& pass, const Layer& layer, std::uint32_t index, const float* x) const;

 private:
  void norm_parts(RecurrentPass& pass, float* low) const;

  MambaShape shape_;
  StateLayout states_;
  const kernels::KernelTable& kernels_;
  std::vector<float> ones_;  // weights for norms without weights
};

// Mamba-2 (Dao and Gu, 2024).
struct Mamba2Layer {
  PackedMatrix in;                      // [z, x, b, c, time steps]
  std::vector<float> conv, conv_bias;   // of x, b, c
  std::vector<float> dt_bias, a, skip;  // [heads]
  std::vector<float> norm;              // [inner], over each group; may be empty
  PackedMatrix out;

  void visit(WeightVisitor& visitor) const { visitor.all(in, conv, conv_bias, dt_bias, a, skip, norm, out); }
};
class Mamba2Mixer {
 public:
  static constexpr bool kHasHeads = true;
  using Layer = Mamba2Layer;
  static Layer read(TensorReader& in, const std::string& prefix, const MambaShape& shape, std::uint32_t dim);

  Mamba2Mixer(const MambaShape& shape, const StateLayout& states, const kernels::KernelTable& kernels, float epsilon)
      : shape_(shape), states_(states), kernels_(kernels), epsilon_(epsilon) {}
  // `projected`: the product of the normed rows with `layer.in`, [rows, in.rows()]; overwritten. The input of
  // `layer.out` is then the first `inner` numbers of each row. `index` and `state_index`: the layer's, and its state's.
  void run(Team& team, Workspace& workspace, const RecurrentRows& rows, const Layer& layer, std::uint32_t index,
           std::uint32_t state_index, float* projected) const;

 private:
  MambaShape shape_;
  StateLayout states_;
  const kernels::KernelTable& kernels_;
  float epsilon_;
};

}  // namespace troupe::engine
