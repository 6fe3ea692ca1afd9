#include "engine/layers/recurrent/gated_delta_net.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/layers/recurrent/convolution.h"
#include "kernels/recurrent/recurrent.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

constexpr std::int64_t kMaxDeltaHeads = 1 << 12;

}  // namespace

DeltaNetShape read_delta_net_shape(Metadata& meta, bool has_tiled_keys) {
  DeltaNetShape shape{.has_tiled_keys = has_tiled_keys};
  shape.conv_width = meta.count("ssm.conv_kernel", kernels::kMaxConvolution);
  shape.head_size = meta.count("ssm.state_size", kernels::kMaxDeltaKey);
  shape.num_key_heads = meta.count("ssm.group_count", kMaxDeltaHeads);
  shape.num_heads = meta.count("ssm.time_step_rank", kMaxDeltaHeads);
  const std::uint32_t inner = meta.count(
      "ssm.inner_size", kMaxDeltaHeads * static_cast<std::int64_t>(kernels::kMaxDeltaKey), shape.value_dim());
  if (meta.failed()) return shape;
  if (shape.conv_width < 2) meta.fail(ErrorCode::unsupported, "a convolution of width 1 is not supported");
  if (shape.head_size % kernels::kStateLanes != 0)
    meta.fail(ErrorCode::unsupported,
              fmt::format("'ssm.state_size' is {}; only multiples of 16 are supported", shape.head_size));
  if (inner != shape.value_dim())
    meta.fail(
        ErrorCode::unsupported,
        fmt::format("'ssm.inner_size' is {}; only heads of values as long as those of keys are supported: {} of {}",
                    inner, shape.num_heads, shape.head_size));
  if (shape.num_heads % shape.num_key_heads != 0)
    meta.fail(ErrorCode::bad_model, fmt::format("{} heads of values cannot share {} heads of keys evenly",
                                                shape.num_heads, shape.num_key_heads));
  return shape;
}

DeltaNetLayer GatedDeltaNet::read(TensorReader& in, const std::string& prefix, const DeltaNetShape& shape,
                                  std::uint32_t dim) {
  const std::uint64_t channels = shape.num_convolved(), heads = shape.num_heads;
  DeltaNetLayer layer;
  layer.qkv = in.matrix(prefix + "attn_qkv.weight", channels, dim);
  layer.gate = in.matrix(prefix + "attn_gate.weight", shape.value_dim(), dim);
  if (in.has(prefix + "ssm_ba.weight")) {
    layer.both = in.matrix(prefix + "ssm_ba.weight", 2 * heads, dim);
  } else {
    layer.beta = in.matrix(prefix + "ssm_beta.weight", heads, dim);
    layer.alpha = in.matrix(prefix + "ssm_alpha.weight", heads, dim);
  }
  layer.conv = read_convolution(in, prefix + "ssm_conv1d.weight", shape.conv_width, channels);
  layer.conv_bias.assign(channels, 0.0f);
  layer.dt_bias = in.vector(prefix + "ssm_dt.bias", heads);
  layer.a = in.vector(prefix + "ssm_a", heads);
  // Above 0 a state would grow without bound.
  if (std::any_of(layer.a.begin(), layer.a.end(), [](float a) { return !(a <= 0.0f && a > -1e30f); }))
    in.fail_model("tensor '" + prefix + "ssm_a' must hold numbers of at most 0, and above -1e30");
  layer.norm = in.vector(prefix + "ssm_norm.weight", shape.head_size);
  layer.out = in.matrix(prefix + "ssm_out.weight", dim, shape.value_dim());
  return layer;
}

void GatedDeltaNet::run(Team& team, Workspace& workspace, const RecurrentRows& rows, const DeltaNetLayer& layer,
                        std::uint32_t index, std::uint32_t state_index, float* projected) const {
  const OperationScope scope(team, Operation::scan, index);
  const Row at = row_of(shape_);
  const std::size_t channels = shape_.num_convolved(), size = shape_.head_size, key_dim = shape_.key_dim();
  float* const convolved = workspace.take<float>(Slot::convolved, rows.num_rows * channels).data();
  convolve(kernels_, team, rows,
           {.x = projected + at.qkv,
            .stride = at.width,
            .out = convolved,
            .out_stride = channels,
            .num_channels = channels,
            .weight = layer.conv,
            .bias = layer.conv_bias,
            .width = shape_.conv_width},
           states_, state_index);
  const auto large = [&](float* of) { return states_.large(of, state_index); };
  const std::size_t share = shape_.num_heads / shape_.num_key_heads;
  for_units(team, rows, {.count = shape_.num_heads, .min_per_chunk = 4, .floats_per_unit = size * size}, large,
            [&](std::size_t sequence, std::size_t row, std::size_t tokens, std::size_t head, std::size_t) {
              const float* const from = convolved + row * channels;
              float* const of_row = projected + row * at.width;
              const std::size_t key = shape_.key_head(static_cast<std::uint32_t>(head)) * size;
              const std::size_t beta = layer.both ? head / share * 2 * share + head % share : head;
              const std::size_t alpha = beta + (layer.both ? share : shape_.num_heads);
              float* const gate = of_row + at.gate + head * size;
              kernels_.recurrent->delta_rule({.q = from + key,
                                              .k = from + key_dim + key,
                                              .v = from + 2 * key_dim + head * size,
                                              .stride = channels,
                                              .alpha = of_row + at.beta + alpha,
                                              .beta = of_row + at.beta + beta,
                                              .step_stride = at.width,
                                              .gate = gate,
                                              .gate_stride = at.width,
                                              .a = layer.a[head],
                                              .dt_bias = layer.dt_bias[head],
                                              .norm_weight = layer.norm.data(),
                                              .norm_epsilon = epsilon_,
                                              .out = gate,
                                              .out_stride = at.width,
                                              .state = large(rows.batch[sequence].state) + head * size * size,
                                              .key_size = size,
                                              .value_size = size,
                                              .num_tokens = tokens});
            });
}

}  // namespace troupe::engine
