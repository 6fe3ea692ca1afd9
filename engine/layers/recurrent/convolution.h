// Convolutions of channels over time: Mamba's, and the gated short ones of LFM2 (Liquid AI, "LFM2 Technical Report",
// 2025).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/formats/metadata.h"
#include "engine/layers/recurrent/recurrent_pass.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {

// The weights of a convolution in a file's tensor [channels][width], as the kernels read them: [width][channels].
[[nodiscard]] std::vector<float> read_convolution(TensorReader& in, const std::string& name, std::uint32_t width,
                                                  std::uint64_t channels);

// A causal convolution of all rows; kernels::Convolution says what is computed.
struct ChannelConvolution {
  const float* x = nullptr;  // rows of `stride` numbers
  std::size_t stride = 0;
  const float* in_gate = nullptr;  // of the same rows, as out_gate; null: none, and SiLU
  const float* out_gate = nullptr;
  float* out = nullptr;  // rows of `out_stride` numbers
  std::size_t out_stride = 0;
  std::size_t num_channels = 0;      // a multiple of 16
  const std::vector<float>& weight;  // [width][num_channels]
  const std::vector<float>& bias;
  std::uint32_t width = 0;
};
// The last inputs are the exact part of the states, with the place `state_index`. They are never rounded.
void convolve(const kernels::KernelTable& kernels, Team& team, RecurrentRows rows, const ChannelConvolution& all,
              const StateLayout& states, std::uint32_t state_index);

struct ShortConvolutionShape {
  std::uint32_t dim = 0;
  std::uint32_t width = 0;

  StateLayout state_layout(std::uint32_t num_layers) const {
    return {.exact_per_layer = std::uint64_t{width - 1} * dim, .num_layers = num_layers};
  }
};
// Reads `PREFIX.shortconv.l_cache`.
[[nodiscard]] ShortConvolutionShape read_short_convolution_shape(Metadata& meta, std::uint32_t dim);

struct ShortConvolutionLayer {
  PackedMatrix in;                // [b, c, x]
  std::vector<float> conv, bias;  // [width][dim]; zeros
  PackedMatrix out;

  void visit(WeightVisitor& visitor) const { visitor.all(in, conv, bias, out); }
};

// W_out (c * conv(b * x)), where b, c and x are the thirds of W_in n.
class ShortConvolution {
 public:
  static ShortConvolutionLayer read(TensorReader& in, const std::string& prefix, const ShortConvolutionShape& shape);

  ShortConvolution(const ShortConvolutionShape& shape, const StateLayout& states, const kernels::KernelTable& kernels)
      : shape_(shape), states_(states), kernels_(kernels) {}
  // `projected`: the product of the normed rows with `layer.in`, [rows, 3 * dim]; overwritten. The input of `layer.out`
  // is then the first `dim` numbers of each row. `index` and `state_index`: the layer's, and its state's.
  void run(Team& team, const RecurrentRows& rows, const ShortConvolutionLayer& layer, std::uint32_t index,
           std::uint32_t state_index, float* projected) const;

 private:
  const ShortConvolutionShape& shape_;
  const StateLayout& states_;
  const kernels::KernelTable& kernels_;
};

}  // namespace troupe::engine
