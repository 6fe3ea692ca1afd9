#include "engine/layers/recurrent/mamba_mixer.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/assert.h"
#include "engine/layers/recurrent/convolution.h"
#include "kernels/recurrent/recurrent.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;
using kernels::kStateLanes;

constexpr std::int64_t kMaxInner = 1 << 20;
constexpr std::int64_t kMaxState = 1 << 12;

// Blocks of 16 channels per call: four are adjacent in a row, and so are their cache lines.
constexpr std::size_t kBlocksAtOnce = 4;

// a must not be above 0, or states grow without bound; 0 keeps a state for ever.
void check_not_above_zero(TensorReader& in, const std::string& name, const std::vector<float>& a) {
  if (std::any_of(a.begin(), a.end(), [](float x) { return !(x <= 0.0f && x > -1e30f); }))
    in.fail_model("tensor '" + name + "' must hold numbers of at most 0, and above -1e30");
}

}  // namespace

MambaShape read_mamba_shape(Metadata& meta, bool has_heads) {
  MambaShape shape{.has_heads = has_heads};
  shape.conv_width = meta.count("ssm.conv_kernel", kernels::kMaxConvolution);
  shape.inner = meta.count("ssm.inner_size", kMaxInner);
  shape.state_size = meta.count("ssm.state_size", kMaxState);
  shape.num_heads = meta.count("ssm.time_step_rank", kMaxInner);
  if (has_heads)
    meta.refuse_unless("ssm.dt_b_c_rms", {false}, "of Mamba's first version alone b and c can be normed");
  else if (meta.boolean("ssm.dt_b_c_rms", false))
    shape.norm_epsilon = static_cast<float>(meta.positive("attention.layer_norm_rms_epsilon"));
  if (meta.failed()) return shape;
  if (shape.conv_width < 2) meta.fail(ErrorCode::unsupported, "a convolution of width 1 is not supported");
  if (shape.inner % kStateLanes != 0)
    meta.fail(ErrorCode::unsupported,
              fmt::format("'ssm.inner_size' is {}; only multiples of 16 are supported", shape.inner));
  if (!has_heads) return shape;
  shape.num_groups = meta.count("ssm.group_count", kMaxInner, 1);
  if (shape.inner % shape.num_heads != 0 || shape.head_dim() % kStateLanes != 0)
    meta.fail(ErrorCode::unsupported,
              fmt::format("{} heads of {} channels: only heads of a multiple of 16 are supported", shape.num_heads,
                          shape.inner));
  if (2 * shape.bc_dim() % kStateLanes != 0)
    meta.fail(ErrorCode::unsupported,
              fmt::format("{} groups of {} state elements: only multiples of 8 in all are supported", shape.num_groups,
                          shape.state_size));
  if (shape.num_heads % shape.num_groups != 0)
    meta.fail(ErrorCode::bad_model,
              fmt::format("{} heads cannot share {} groups evenly", shape.num_heads, shape.num_groups));
  return shape;
}

// ---- Mamba -------------------------------------------------------------------------------------

MambaLayer MambaMixer::read(TensorReader& in, const std::string& prefix, const MambaShape& shape, std::uint32_t dim) {
  const std::uint64_t inner = shape.inner, state = shape.state_size, rank = shape.num_heads;
  MambaLayer layer;
  layer.in = in.matrix(prefix + "ssm_in.weight", 2 * inner, dim);
  layer.conv = read_convolution(in, prefix + "ssm_conv1d.weight", shape.conv_width, inner);
  layer.conv_bias = in.vector(prefix + "ssm_conv1d.bias", inner);
  layer.x = in.matrix(prefix + "ssm_x.weight", rank + 2 * state, inner);
  layer.dt = in.matrix(prefix + "ssm_dt.weight", inner, rank);
  layer.dt_bias = in.vector(prefix + "ssm_dt.bias", inner);
  const std::vector<float> a = in.vector(prefix + "ssm_a", inner * state, {state, inner});
  check_not_above_zero(in, prefix + "ssm_a", a);
  layer.a.resize(a.size());
  for (std::size_t channel = 0; channel < inner && !a.empty(); ++channel)
    for (std::size_t n = 0; n < state; ++n)
      layer.a[(channel / kStateLanes * state + n) * kStateLanes + channel % kStateLanes] = a[channel * state + n];
  layer.skip = in.vector(prefix + "ssm_d", inner);
  layer.out = in.matrix(prefix + "ssm_out.weight", dim, inner);
  return layer;
}

MambaMixer::MambaMixer(const MambaShape& shape, const StateLayout& states, const kernels::KernelTable& kernels)
    : shape_(shape),
      states_(states),
      kernels_(kernels),
      ones_(shape.norm_epsilon == 0 ? 0 : std::max(shape.num_heads, shape.state_size), 1.0f) {}

// Norms the time steps, b and c of each row separately.
void MambaMixer::norm_parts(RecurrentPass& pass, float* low) const {
  const std::size_t rank = shape_.num_heads, state = shape_.state_size;
  pass.for_each_row([&](std::size_t row) {
    float* part = low + row * (rank + 2 * state);
    for (const std::size_t size : {rank, state, state}) {
      kernels_.rms_norm(part, ones_.data(), part, size, shape_.norm_epsilon);
      part += size;
    }
  });
}

float* MambaMixer::run(RecurrentPass& pass, const MambaLayer& layer, std::uint32_t index, const float* x) const {
  const std::size_t inner = shape_.inner, state = shape_.state_size, rank = shape_.num_heads;
  const RecurrentRows rows = pass.rows();
  float* xz = pass.take(Slot::mixer, 2 * inner).data();
  float* convolved = pass.take(Slot::convolved, inner).data();
  const std::size_t low_stride = rank + 2 * state;
  float* low = pass.take(Slot::low_rank, low_stride).data();
  float* dt = pass.take(Slot::time_steps, inner).data();
  const std::size_t num_blocks = inner / kStateLanes;
  {
    const OperationScope scope(pass.team(), Operation::mixer_in, index);
    pass.multiply(x, layer.in.k(), {{&layer.in, xz, 2 * inner}});
    convolve(kernels_, pass.team(), rows,
             {.x = xz,
              .stride = 2 * inner,
              .out = convolved,
              .out_stride = inner,
              .num_channels = inner,
              .weight = layer.conv,
              .bias = layer.conv_bias,
              .width = shape_.conv_width},
             states_, index);
    pass.multiply(convolved, inner, {{&layer.x, low, low_stride}});
    if (shape_.norm_epsilon != 0) norm_parts(pass, low);
    pass.multiply(low, low_stride, {{&layer.dt, dt, inner}});
  }
  const OperationScope scope(pass.team(), Operation::scan, index);
  const auto large = [&](float* of) { return states_.large(of, index); };
  for_units(
      pass.team(), rows,
      {.count = num_blocks, .at_once = kBlocksAtOnce, .min_per_chunk = 16, .floats_per_unit = state * kStateLanes},
      large, [&](std::size_t sequence, std::size_t row, std::size_t tokens, std::size_t block, std::size_t count) {
        const std::size_t channel = block * kStateLanes;
        float* at = convolved + row * inner + channel;
        kernels_.recurrent->selective_scan({.x = at,
                                            .x_stride = inner,
                                            .dt = dt + row * inner + channel,
                                            .dt_stride = inner,
                                            .z = xz + row * 2 * inner + inner + channel,
                                            .z_stride = 2 * inner,
                                            .b = low + row * low_stride + rank,
                                            .c = low + row * low_stride + rank + state,
                                            .bc_stride = low_stride,
                                            .a = layer.a.data() + block * state * kStateLanes,
                                            .dt_bias = layer.dt_bias.data() + channel,
                                            .skip = layer.skip.data() + channel,
                                            .y = at,
                                            .y_stride = inner,
                                            .state = large(rows.batch[sequence].state) + block * state * kStateLanes,
                                            .state_size = shape_.state_size,
                                            .num_blocks = count,
                                            .num_tokens = tokens});
      });
  return convolved;
}

// ---- Mamba-2 -----------------------------------------------------------------------------------

Mamba2Layer Mamba2Mixer::read(TensorReader& in, const std::string& prefix, const MambaShape& shape, std::uint32_t dim) {
  const std::uint64_t inner = shape.inner, heads = shape.num_heads, groups = shape.num_groups;
  const std::uint64_t channels = shape.num_convolved();
  Mamba2Layer layer;
  layer.in = in.matrix(prefix + "ssm_in.weight", inner + channels + heads, dim);
  layer.conv = read_convolution(in, prefix + "ssm_conv1d.weight", shape.conv_width, channels);
  layer.conv_bias = in.optional_vector(prefix + "ssm_conv1d.bias", channels);
  if (layer.conv_bias.empty()) layer.conv_bias.assign(channels, 0.0f);
  layer.dt_bias = in.vector(prefix + "ssm_dt.bias", heads);
  layer.a = in.vector(prefix + "ssm_a", heads, {1, heads});
  check_not_above_zero(in, prefix + "ssm_a", layer.a);
  layer.skip = in.vector(prefix + "ssm_d", heads, {1, heads});
  if (in.has(prefix + "ssm_norm.weight"))
    layer.norm = in.vector(prefix + "ssm_norm.weight", inner, {inner / groups, groups});
  layer.out = in.matrix(prefix + "ssm_out.weight", dim, inner);
  return layer;
}

void Mamba2Mixer::run(Team& team, Workspace& workspace, const RecurrentRows& rows, const Mamba2Layer& layer,
                      std::uint32_t index, std::uint32_t state_index, float* projected) const {
  const OperationScope scope(team, Operation::scan, index);
  const std::size_t inner = shape_.inner, head_dim = shape_.head_dim(), state = shape_.state_size;
  const std::size_t channels = shape_.num_convolved(), stride = inner + channels + shape_.num_heads;
  float* convolved = workspace.take<float>(Slot::convolved, rows.num_rows * channels).data();
  convolve(kernels_, team, rows,
           {.x = projected + inner,
            .stride = stride,
            .out = convolved,
            .out_stride = channels,
            .num_channels = channels,
            .weight = layer.conv,
            .bias = layer.conv_bias,
            .width = shape_.conv_width},
           states_, state_index);
  const auto large = [&](float* of) { return states_.large(of, state_index); };
  const std::size_t heads_per_group = shape_.num_heads / shape_.num_groups;
  // y overwrites z at the beginning of each row of `projected`.
  for_units(team, rows, {.count = shape_.num_heads, .min_per_chunk = 4, .floats_per_unit = head_dim * state}, large,
            [&](std::size_t sequence, std::size_t row, std::size_t tokens, std::size_t head, std::size_t) {
              const float* from = convolved + row * channels;
              float* z = projected + row * stride + head * head_dim;
              kernels_.recurrent->head_scan({.x = from + head * head_dim,
                                             .x_stride = channels,
                                             .dt = projected + row * stride + inner + channels + head,
                                             .dt_stride = stride,
                                             .z = z,
                                             .z_stride = stride,
                                             .b = from + inner + head / heads_per_group * state,
                                             .c = from + inner + shape_.bc_dim() + head / heads_per_group * state,
                                             .bc_stride = channels,
                                             .a = layer.a[head],
                                             .dt_bias = layer.dt_bias[head],
                                             .skip = layer.skip[head],
                                             .y = z,
                                             .y_stride = stride,
                                             .state = large(rows.batch[sequence].state) + head * head_dim * state,
                                             .state_size = shape_.state_size,
                                             .head_dim = head_dim,
                                             .num_tokens = tokens});
            });
  if (layer.norm.empty()) return;
  const std::size_t group = inner / shape_.num_groups;
  team.parallel_for(divide_up(rows.num_rows, kStateLanes), [&](std::size_t chunk, std::uint32_t) {
    const std::size_t end = std::min(rows.num_rows, (chunk + 1) * kStateLanes);
    for (std::size_t row = chunk * kStateLanes; row < end; ++row)
      for (std::size_t i = 0; i < inner; i += group) {
        float* y = projected + row * stride + i;
        kernels_.rms_norm(y, layer.norm.data() + i, y, group, epsilon_);
      }
  });
}

}  // namespace troupe::engine
