#include "engine/layers/recurrent/convolution.h"

#include <fmt/format.h>

#include "kernels/recurrent/recurrent.h"

namespace troupe::engine {
namespace {

using kernels::kStateLanes;

// Blocks of 16 channels per call: four are adjacent in a row, and so are their cache lines.
constexpr std::size_t kConvolvedAtOnce = 4;

}  // namespace

std::vector<float> read_convolution(TensorReader& in, const std::string& name, std::uint32_t width,
                                    std::uint64_t channels) {
  const std::vector<float> values = in.vector(name, width * channels, {width, channels});
  std::vector<float> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) out[i % width * channels + i / width] = values[i];
  return out;
}

void convolve(const kernels::KernelTable& kernels, Team& team, RecurrentRows rows, const ChannelConvolution& all,
              const StateLayout& states, std::uint32_t state_index) {
  rows.round_every = 0;
  const auto exact = [&](float* state) { return states.exact(state, state_index); };
  for_units(team, rows,
            {.count = all.num_channels / kStateLanes,
             .at_once = kConvolvedAtOnce,
             .min_per_chunk = 256,
             .floats_per_unit = kStateLanes,
             .num_runs = all.width - 1,
             .run_stride = all.num_channels},
            exact,
            [&](std::size_t sequence, std::size_t row, std::size_t tokens, std::size_t block, std::size_t count) {
              const std::size_t channel = block * kStateLanes, at = row * all.stride + channel;
              kernels.recurrent->convolve({.x = all.x + at,
                                           .x_stride = all.stride,
                                           .in_gate = all.in_gate ? all.in_gate + at : nullptr,
                                           .out_gate = all.out_gate ? all.out_gate + at : nullptr,
                                           .out = all.out + row * all.out_stride + channel,
                                           .out_stride = all.out_stride,
                                           .weight = all.weight.data() + channel,
                                           .weight_stride = all.num_channels,
                                           .bias = all.bias.data() + channel,
                                           .history = exact(rows.batch[sequence].state) + channel,
                                           .width = all.width,
                                           .num_channels = count * kStateLanes,
                                           .num_tokens = tokens});
            });
}

ShortConvolutionShape read_short_convolution_shape(Metadata& meta, std::uint32_t dim) {
  const ShortConvolutionShape shape{.dim = dim, .width = meta.count("shortconv.l_cache", kernels::kMaxConvolution)};
  if (meta.failed()) return shape;
  if (shape.width < 2) meta.fail(ErrorCode::unsupported, "a convolution of width 1 is not supported");
  if (dim % kStateLanes != 0)
    meta.fail(ErrorCode::unsupported,
              fmt::format("short convolutions of {} channels: only multiples of 16 are supported", dim));
  return shape;
}

ShortConvolutionLayer ShortConvolution::read(TensorReader& in, const std::string& prefix,
                                             const ShortConvolutionShape& shape) {
  ShortConvolutionLayer layer;
  layer.in = in.matrix(prefix + "shortconv.in_proj.weight", 3 * std::uint64_t{shape.dim}, shape.dim);
  layer.conv = read_convolution(in, prefix + "shortconv.conv.weight", shape.width, shape.dim);
  layer.bias.resize(shape.dim);
  layer.out = in.matrix(prefix + "shortconv.out_proj.weight", shape.dim, shape.dim);
  return layer;
}

void ShortConvolution::run(Team& team, const RecurrentRows& rows, const ShortConvolutionLayer& layer,
                           std::uint32_t index, std::uint32_t state_index, float* projected) const {
  const OperationScope scope(team, Operation::scan, index);
  const std::size_t dim = shape_.dim;
  convolve(kernels_, team, rows,
           {.x = projected + 2 * dim,
            .stride = 3 * dim,
            .in_gate = projected,
            .out_gate = projected + dim,
            .out = projected,
            .out_stride = 3 * dim,
            .num_channels = dim,
            .weight = layer.conv,
            .bias = layer.bias,
            .width = shape_.width},
           states_, state_index);
}

}  // namespace troupe::engine
