// The mixers of Mamba and Mamba-2, for purely recurrent families and for those that also have attention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/formats/metadata.h"
#include "engine/layers/recurrent_pass.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {

struct MambaShape {
  std::uint32_t conv_width = 0;
  std::uint32_t inner = 0;  // channels
  std::uint32_t state_size = 0;
  std::uint32_t num_heads = 0;   // Mamba-2: heads; Mamba: the rank of time steps
  std::uint32_t num_groups = 1;  // Mamba-2: groups of heads that share b and c
  float norm_epsilon = 0;        // Mamba: of Falcon-Mamba's norms of time steps, b and c; 0: there are none

  std::uint32_t head_dim() const { return inner / num_heads; }
  std::uint32_t bc_dim() const { return num_groups * state_size; }
};

// Reads `PREFIX.ssm.*`; `heads`: with the keys of Mamba-2.
[[nodiscard]] MambaShape read_mamba_shape(Metadata& meta, bool heads);

// Mamba (Gu and Dao, 2023), and Falcon-Mamba (Zuo et al., "Falcon Mamba: The First Competitive Attention-free 7B
// Language Model", 2024).
struct MambaLayer {
  PackedMatrix in;                     // [x, z]
  std::vector<float> conv, conv_bias;  // [width][inner], [inner]
  PackedMatrix x;                      // [time steps of low rank, b, c]
  PackedMatrix dt;
  std::vector<float> dt_bias, a, skip;  // a [inner / 16][state][16]
  PackedMatrix out;
};
class MambaMixer {
 public:
  static StateLayout state_layout(const MambaShape& shape, std::uint32_t num_layers);
  static MambaLayer read(TensorReader& in, const std::string& prefix, const MambaShape& shape, std::uint32_t dim);

  MambaMixer(const MambaShape& shape, const kernels::KernelTable& kernels);
  // Runs the mixer on normed rows x [rows, dim]. Returns the input of `layer.out`, [rows, inner].
  float* run(RecurrentPass& pass, const MambaLayer& layer, std::uint32_t index, const StateLayout& states,
             const float* x, std::size_t stride) const;

 private:
  void norm_parts(RecurrentPass& pass, float* low) const;

  const MambaShape shape_;
  const kernels::KernelTable& kernels_;
  const std::vector<float> ones_;  // weights for norms without weights
};

// Mamba-2 (Dao and Gu, 2024).
struct Mamba2Layer {
  PackedMatrix in;                      // [z, x, b, c, time steps]
  std::vector<float> conv, conv_bias;   // of x, b, c
  std::vector<float> dt_bias, a, skip;  // [heads]
  std::vector<float> norm;              // [inner], over each group; may be empty
  PackedMatrix out;
};
class Mamba2Mixer {
 public:
  static StateLayout state_layout(const MambaShape& shape, std::uint32_t num_layers);
  static Mamba2Layer read(TensorReader& in, const std::string& prefix, const MambaShape& shape, std::uint32_t dim);

  Mamba2Mixer(const MambaShape& shape, const kernels::KernelTable& kernels, float epsilon)
      : shape_(shape), kernels_(kernels), epsilon_(epsilon) {}
  // `projected`: the product of the normed rows with `layer.in`, [rows, in.rows()]; overwritten. Returns the input of
  // `layer.out`: the first `inner` numbers of each row, with a stride of in.rows().
  float* run(Team& team, Workspace& workspace, const RecurrentRows& rows, const Mamba2Layer& layer, std::uint32_t index,
             const StateLayout& states, float* projected) const;

 private:
  const MambaShape shape_;
  const kernels::KernelTable& kernels_;
  const float epsilon_;
};

}  // namespace troupe::engine
