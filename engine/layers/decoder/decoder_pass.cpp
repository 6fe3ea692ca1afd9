#include "engine/layers/decoder/decoder_pass.h"

#include <algorithm>
#include <cstring>

#include "config/assert.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

// Rotating and storing eight decode rows or fewer does not pay for a join.
constexpr std::size_t kMinRowsPerStore = 8;

// Of Gate::clamped.
constexpr float kGateLimit = 7.0f, kGateSlope = 1.702f;

// Makes gate and up such that silu(gate) * up is the clamped gate's: g sigmoid(a g) (u + 1) = silu(a g) (u + 1) / a.
void clamp_for_silu(float* gate, float* up, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    gate[i] = kGateSlope * std::min(gate[i], kGateLimit);
    up[i] = (std::clamp(up[i], -kGateLimit, kGateLimit) + 1.0f) / kGateSlope;
  }
}

// The blocks of a sequence up to its last row.
std::uint32_t num_used_blocks(const SequencePlace& place) { return blocks_for(place.first_position + place.num_rows); }

}  // namespace

DecoderPass::DecoderPass(const DecoderWeights& weights, Team& team, std::span<const SequenceRows> batch,
                         const KvArenas& arenas, Workspace& workspace)
    : LayerPass(weights, team, batch, workspace),
      weights_(weights),
      info_(weights.info),
      gate_mul_(weights.traits.gate == Gate::gelu           ? kernels_.gelu_mul
                : weights.traits.gate == Gate::squared_relu ? kernels_.relu2_mul
                                                            : kernels_.silu_mul) {
  const OperationScope scope(team, Operation::prepare);
  for (const DecoderLayer& layer : weights.layers)
    qkv_stride_ =
        std::max(qkv_stride_, std::size_t{layer.shape.attention.q_dim()} + 2 * layer.shape.attention.kv_dim());
  list_blocks(arenas);
  plan_attention();
  list_block_rows();
  qkv_ = workspace.take<float>(Slot::qkv, num_rows_ * qkv_stride_);
  attention_ = workspace.take<float>(Slot::attention, num_rows_ * qkv_stride_);
  scratch_stride_ = odd_lines(info_.dim);
  scratch_ = workspace.take<float>(Slot::thread_scratch, team.num_threads() * kRowsAtOnce * scratch_stride_);
}

std::uint64_t DecoderPass::kv_bytes_read() const {
  std::uint64_t bytes = 0;
  for (const auto& plan : plans_) bytes += plan ? plan->kv_bytes_read() : 0;
  return bytes;
}

void DecoderPass::list_blocks(const KvArenas& arenas) {
  std::uint32_t num_blocks = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    places_[i].first_block = num_blocks;
    num_blocks += num_used_blocks(places_[i]);
    TROUPE_ASSERT(num_used_blocks(places_[i]) <= batch_[i].tables[0].size());
  }
  const std::vector<CacheGroup>& groups = weights_.cache.groups;
  TROUPE_ASSERT(groups.size() <= groups_.size() && groups.size() == arenas.size());
  for (GroupId group = 0; group < groups.size(); ++group) {
    if (groups[group].layers.empty()) continue;
    const auto parts = workspace_.take<const std::byte*>(Slot::blocks, num_blocks, group);
    groups_[group].parts = parts;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const BlockTable& table = batch_[i].tables[group];
      const std::uint32_t used = num_used_blocks(places_[i]);
      TROUPE_ASSERT(used <= table.size());
      for (std::uint32_t block = 0; block < used; ++block)
        parts[places_[i].first_block + block] = table[block] == kNoBlock ? nullptr : arenas[group]->block(table[block]);
    }
  }
}

void DecoderPass::plan_attention() {
  for (std::uint32_t i = 0; i < weights_.plans.size(); ++i) {
    const AttentionShape& shape = weights_.plans[i];
    const AttentionRule rule{.scale = weights_.attention_scale,
                             .soft_cap = weights_.attention_cap,
                             .window = weights_.cache.groups[shape.group].window,
                             .plan = i,
                             .key_biases = !weights_.turns.empty()};
    const AttentionPlan plan(kernels_, shape.kv(weights_.cache.kv_type), shape.num_heads, rule, team_, workspace_);
    plans_[i].emplace(plan).make(places_, groups_[shape.group].parts);
  }
}

// Moves the addresses of the group's blocks to the parts of this layer.
void DecoderPass::go_to_layers_blocks() {
  const LayerShape& shape = this_layer().shape;
  GroupBlocks& group = groups_[shape.attention.group];
  if (group.offset == shape.kv_offset) return;
  for (const std::byte*& part : group.parts)
    if (part) part = part - group.offset + shape.kv_offset;
  group.offset = shape.kv_offset;
}

void DecoderPass::list_block_rows() {
  std::size_t num_block_rows = 0;
  for (const SequencePlace& place : places_)
    num_block_rows += num_used_blocks(place) - place.first_position / kBlockSize;
  block_rows_ = workspace_.take<BlockRows>(Slot::block_runs, num_block_rows);
  std::size_t count = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const SequencePlace& place = places_[i];
    const std::uint32_t end = place.first_position + place.num_rows;
    for (std::uint32_t position = place.first_position; position < end;) {
      const std::uint32_t next = std::min(end, (position / kBlockSize + 1) * kBlockSize);
      block_rows_[count++] = {static_cast<std::uint32_t>(i), position - place.first_position, next - position};
      position = next;
    }
  }
}

void DecoderPass::norm(const std::vector<float>& norm, std::initializer_list<const PackedMatrix*> consumers,
                       bool keeps) {
  const OperationScope scope(team_, &norm == &this_layer().attn_norm ? Operation::attn_norm : Operation::ffn_norm,
                             layer_);
  input_.reset(num_rows_, consumers);
  if (keeps) normed_ = workspace_.take<float>(Slot::normed, num_rows_ * info_.dim);
  norm_rows(norm, keeps ? normed_.data() : nullptr);
}

void DecoderPass::prepare_normed(std::initializer_list<const PackedMatrix*> consumers) {
  const OperationScope scope(team_, Operation::ffn_norm, layer_);
  input_.reset(num_rows_, consumers);
  for_rows(input_.rows_at_once(), [&](std::size_t first, std::size_t count, std::uint32_t) {
    input_.set_rows(first, count, normed_.data() + first * info_.dim, info_.dim);
  });
}

void DecoderPass::apply_norm(const float* x, const std::vector<float>& norm, float* out) const {
  const std::size_t dim = info_.dim;
  if (weights_.traits.layer_norms)
    kernels_.recurrent->layer_norm(x, norm.data(), norm.data() + dim, out, dim, info_.rms_epsilon);
  else
    kernels_.rms_norm(x, norm.data(), out, dim, info_.rms_epsilon);
}

// Norms q or k, `dim` numbers, as the family does it.
void DecoderPass::norm_heads(float* x, const std::vector<float>& norm, std::size_t dim) const {
  const std::size_t head_dim = this_layer().shape.attention.head_dim;
  const QkNorm kind = weights_.traits.qk_norm;
  if (norm.empty()) return;
  if (kind == QkNorm::rows) return kernels_.rms_norm(x, norm.data(), x, dim, info_.rms_epsilon);
  for (std::size_t at = 0; at < dim; at += head_dim) {
    const float* const weights = norm.data() + (kind == QkNorm::own_heads ? at : 0);
    if (weights_.traits.layer_norms)
      kernels_.recurrent->layer_norm(x + at, weights, norm.data() + dim, x + at, head_dim, info_.rms_epsilon);
    else
      kernels_.rms_norm(x + at, weights, x + at, head_dim, info_.rms_epsilon);
  }
}

void DecoderPass::norm(const std::vector<float>& norm, const ExpertWeights& consumer) {
  const OperationScope scope(team_, Operation::ffn_norm, layer_);
  input_.reset(num_rows_, {&consumer.router, &consumer.shared_gate, &consumer.shared.gate, &consumer.shared.up});
  normed_ = workspace_.take<float>(Slot::normed, num_rows_ * info_.dim);
  norm_rows(norm, normed_.data());
}

void DecoderPass::add_pending(float* x, std::size_t row) {
  if (!delta_pending_) return;
  float* delta = delta_.data() + row * info_.dim;
  if (delta_bias_) kernels_.add(delta, delta_bias_->data(), info_.dim);
  if (delta_norm_) apply_norm(delta, *delta_norm_, delta);
  kernels_.add(x, delta, info_.dim);
}

// The normed rows also go to `keep` [rows, dim] unless that is null.
void DecoderPass::norm_rows(const std::vector<float>& norm, float* keep) {
  for_rows(input_.rows_at_once(), [&](std::size_t first, std::size_t count, std::uint32_t thread) {
    float* normed = keep ? keep + first * info_.dim : thread_scratch(thread);
    const std::size_t stride = keep ? info_.dim : scratch_stride_;
    for (std::size_t i = 0; i < count; ++i) {
      float* x = residual_.data() + (first + i) * info_.dim;
      add_pending(x, first + i);
      if (!norm.empty()) apply_norm(x, norm, normed + i * stride);
    }
    if (norm.empty())
      input_.set_rows(first, count, residual_.data() + first * info_.dim, info_.dim);
    else
      input_.set_rows(first, count, normed, stride);
  });
  delta_pending_ = false;
}

void DecoderPass::project_qkv(const DecoderLayer& layer) {
  const OperationScope scope(team_, Operation::attn_qkv, layer_);
  float* const q = qkv_.data();
  float* const k = q + layer.shape.attention.q_dim();
  if (layer.attention_gate) attention_gate_ = workspace_.take<float>(Slot::attention_gate, num_rows_ * gate_width());
  const Product gate{&layer.attention_gate, attention_gate_.data(), gate_width()};
  if (layer.shape.kv_layer != layer_) return input_.multiply({{&layer.q, q, qkv_stride_}, gate});
  input_.multiply({{&layer.q, q, qkv_stride_},
                   {&layer.k, k, qkv_stride_},
                   {&layer.v, k + layer.shape.attention.kv_dim(), qkv_stride_},
                   gate});
}

void DecoderPass::rotate_and_store() {
  const OperationScope scope(team_, Operation::rope_store, layer_);
  go_to_layers_blocks();
  // One thread per block: neighbouring positions share cache lines.
  const std::size_t blocks_per_chunk = divide_up(kMinRowsPerStore * block_rows_.size(), num_rows_);
  team_.parallel_for(divide_up(block_rows_.size(), blocks_per_chunk), [&](std::size_t chunk, std::uint32_t) {
    const std::size_t end = std::min(block_rows_.size(), (chunk + 1) * blocks_per_chunk);
    for (std::size_t i = chunk * blocks_per_chunk; i < end; ++i) store_rows(block_rows_[i]);
  });
}

void DecoderPass::store_rows(const BlockRows& rows) {
  const SequencePlace& sequence = places_[rows.sequence];
  const DecoderLayer& layer = this_layer();
  const RopeTable& rope = weights_.ropes[layer.shape.rope];
  const AttentionShape& shape = layer.shape.attention;
  const kernels::KvShape kv = shape.kv(weights_.cache.kv_type);
  const std::span<const std::byte* const> blocks = this_layers_blocks();
  const bool has_kv = layer.shape.kv_layer == layer_;
  const std::size_t head_dim = shape.head_dim, q_dim = shape.q_dim(), kv_dim = has_kv ? shape.kv_dim() : 0;
  for (std::uint32_t i = rows.first; i < rows.first + rows.count; ++i) {
    const std::uint32_t position = sequence.first_position + i;
    float* q = qkv_.data() + (sequence.first_row + i) * qkv_stride_;
    float* k = q + q_dim;
    if (!layer.qkv_bias.empty()) kernels_.add(q, layer.qkv_bias.data(), layer.qkv_bias.size());
    const auto norm_both = [&] {
      norm_heads(q, layer.q_norm, q_dim);
      if (has_kv) norm_heads(k, layer.k_norm, kv_dim);
    };
    if (!weights_.traits.norms_rotated) norm_both();
    for (std::size_t at = 0; at < q_dim + kv_dim && rope.rotated() != 0; at += head_dim)
      kernels_.rope(q + at, rope.cos(position), rope.sin(position), rope.rotated());
    if (weights_.traits.norms_rotated) norm_both();
    if (!weights_.query_scales.empty()) {
      const float scale = weights_.query_scales[position / weights_.temperature_step];
      for (std::size_t j = 0; j < q_dim; ++j) q[j] *= scale;
    }
    if (!has_kv) continue;
    // Writing is safe: these blocks belong to the sequence, and these positions are read only after the join.
    auto* block = const_cast<std::byte*>(blocks[sequence.first_block + position / kBlockSize]);
    kernels_.store_kv(kv, block, position % kBlockSize, k, k + kv_dim);
  }
}

// What of a mixer's rows add_mixed() or add_mixer() reads.
std::size_t DecoderPass::mixed_width() const {
  switch (this_layer().shape.recurrence) {
    case Recurrence::none:
      return 0;
    case Recurrence::mamba2:
      return weights_.mamba.inner;
    case Recurrence::short_convolution:
      return weights_.convolution.dim;
    case Recurrence::delta_net:
      return weights_.delta_net.value_dim();
  }
  return 0;
}

bool DecoderPass::drop_rows_without_output() {
  const std::size_t before = num_rows_;
  const LayerShape& shape = this_layer().shape;
  const Kept queries{.x = qkv_.data(), .stride = qkv_stride_, .width = shape.attention.q_dim()};
  const Kept mixed{.x = mixer_.data(), .stride = mixer_stride_, .width = mixed_width()};
  const Kept gate{.x = attention_gate_.data(), .stride = gate_width(), .width = gate_width()};
  const std::size_t normed_width = this_layer().is_parallel ? info_.dim : 0;
  const Kept normed{.x = normed_.data(), .stride = normed_width, .width = normed_width};
  const bool any = LayerPass::drop_rows_without_output({queries, mixed, gate, normed});
  if (any && num_rows_ != before && shape.has_attention()) this_plan().make(places_, this_layers_blocks());
  return any;
}

void DecoderPass::attend() {
  const OperationScope scope(team_, Operation::attention, layer_);
  this_plan().attend(qkv_.data(), attention_.data(), qkv_stride_, weights_.biases_of(this_layer()), this_layer().sinks);
}

void DecoderPass::gate_attention() {
  const std::size_t width = gate_width();
  if (width == 0) return;
  const OperationScope scope(team_, Operation::attn_round, layer_);
  for_each_row([&](std::size_t row) {
    float* const gate = attention_gate_.data() + row * width;
    float* const out = attention_.data() + row * qkv_stride_;
    kernels_.recurrent->map(kernels::Function::sigmoid, gate, gate, width);
    for (std::size_t i = 0; i < width; ++i) out[i] *= gate[i];
  });
}

void DecoderPass::round_rows(float* rows, std::size_t stride, const std::vector<float>& sub_norm) {
  for_rows(input_.rows_at_once(), [&](std::size_t first, std::size_t count, std::uint32_t) {
    float* x = rows + first * stride;
    for (std::size_t i = 0; i < count && !sub_norm.empty(); ++i)
      kernels_.rms_norm(x + i * stride, sub_norm.data(), x + i * stride, sub_norm.size(), info_.rms_epsilon);
    input_.set_rows(first, count, x, stride);
  });
}

void DecoderPass::round_attention(const std::vector<float>& sub_norm, const PackedMatrix& consumer) {
  const OperationScope scope(team_, Operation::attn_round, layer_);
  input_.reset(num_rows_, {&consumer});
  round_rows(attention_.data(), qkv_stride_, sub_norm);
}

void DecoderPass::gate_and_up(const FeedForward& ffn, bool rounds) {
  const OperationScope scope(team_, Operation::ffn_gate_up, layer_);
  const bool has_biases = !ffn.gate_bias.empty() || !ffn.up_bias.empty();
  gated_is_input_ = rounds && weights_.traits.gate == Gate::silu && ffn.gate && !has_biases &&
                    input_.advance_gated(ffn.gate, ffn.up, ffn.down);
  if (gated_is_input_) return;
  const std::size_t dim = ffn.up.rows();
  gate_ = workspace_.take<float>(Slot::gate, num_rows_ * dim);
  up_ = workspace_.take<float>(Slot::up, num_rows_ * dim);
  const Product gate{&ffn.gate, gate_.data(), dim};
  const Product up{&ffn.up, up_.data(), dim};
  input_.for_panels(ffn.up.view().num_panels(), ffn.gate ? 2 : 1, [&](const PanelChunk& chunk) {
    if (ffn.gate) input_.multiply_panels(gate, chunk);
    input_.multiply_panels(up, chunk);
    gate_chunk(ffn, chunk);
  });
}

// Adds biases to this chunk's gate and up outputs, and applies the gate, or GELU if there is none.
void DecoderPass::gate_chunk(const FeedForward& ffn, const PanelChunk& chunk) {
  const std::size_t dim = ffn.up.rows();
  const std::size_t column = chunk.panel_begin * kernels::kPanelRows;
  const std::size_t count = std::min<std::size_t>(chunk.panel_end * kernels::kPanelRows, dim) - column;
  for (std::size_t row = chunk.first_row; row < chunk.first_row + chunk.num_rows; ++row) {
    float* const out = gate_.data() + row * dim + column;
    float* const up = up_.data() + row * dim + column;
    if (!ffn.up_bias.empty()) kernels_.add(up, ffn.up_bias.data() + column, count);
    if (!ffn.gate) {
      kernels_.recurrent->map(kernels::Function::gelu, up, out, count);
      continue;
    }
    if (!ffn.gate_bias.empty()) kernels_.add(out, ffn.gate_bias.data() + column, count);
    if (weights_.traits.gate == Gate::clamped) clamp_for_silu(out, up, count);
    gate_mul_(out, up, out, count);
  }
}

void DecoderPass::round_gated(const std::vector<float>& sub_norm, const PackedMatrix& consumer) {
  if (gated_is_input_) return;
  const OperationScope scope(team_, Operation::ffn_round, layer_);
  input_.reset(num_rows_, {&consumer});
  round_rows(gate_.data(), consumer.k(), sub_norm);
}

void DecoderPass::add_projection(const PackedMatrix& matrix, const std::vector<float>& bias,
                                 const std::vector<float>& post_norm) {
  const OperationScope scope(team_, &matrix == &this_layer().o ? Operation::attn_output : Operation::ffn_down, layer_);
  if (delta_pending_) return add_to_pending(matrix, bias);
  input_.multiply({{&matrix, delta_.data(), info_.dim}});
  delta_pending_ = true;
  delta_bias_ = bias.empty() ? nullptr : &bias;
  delta_norm_ = post_norm.empty() ? nullptr : &post_norm;
}

void DecoderPass::add_to_pending(const PackedMatrix& matrix, const std::vector<float>& bias) {
  TROUPE_ASSERT(delta_pending_ && !delta_norm_);
  const std::size_t dim = info_.dim;
  const std::span<float> out = workspace_.take<float>(Slot::mixed, num_rows_ * dim);
  input_.multiply({{&matrix, out.data(), dim}});
  for_rows(1, [&](std::size_t first, std::size_t count, std::uint32_t) {
    float* const delta = delta_.data() + first * dim;
    kernels_.add(delta, out.data() + first * dim, count * dim);
    for (std::size_t i = 0; i < count && !bias.empty(); ++i) kernels_.add(delta + i * dim, bias.data(), dim);
  });
}

RecurrentRows DecoderPass::recurrent_rows() const {
  return {.places = places_, .batch = batch_, .num_rows = num_rows_, .round_every = round_every(weights_.cache)};
}

void DecoderPass::project_mixer_input(const PackedMatrix& matrix) {
  const OperationScope scope(team_, Operation::mixer_in, layer_);
  mixer_stride_ = matrix.rows();
  mixer_ = workspace_.take<float>(Slot::mixer, num_rows_ * mixer_stride_);
  input_.multiply({{&matrix, mixer_.data(), mixer_stride_}});
}

void DecoderPass::run_convolution(const DecoderLayer& layer) {
  project_mixer_input(layer.convolution.in);
  ShortConvolution(weights_.convolution, weights_.states, kernels_)
      .run(team_, recurrent_rows(), layer.convolution, layer_, layer.shape.state, mixer_.data());
}

void DecoderPass::run_delta_net(const DecoderLayer& layer) {
  const DeltaNetLayer& net = layer.delta_net;
  const GatedDeltaNet::Row at = GatedDeltaNet::row_of(weights_.delta_net);
  {
    const OperationScope scope(team_, Operation::mixer_in, layer_);
    mixer_stride_ = at.width;
    mixer_ = workspace_.take<float>(Slot::mixer, num_rows_ * at.width);
    float* const out = mixer_.data();
    input_.multiply({{&net.gate, out + at.gate, at.width},
                     {&net.qkv, out + at.qkv, at.width},
                     {&net.beta, out + at.beta, at.width},
                     {&net.alpha, out + at.alpha, at.width},
                     {&net.both, out + at.beta, at.width}});
  }
  GatedDeltaNet(weights_.delta_net, weights_.states, kernels_, info_.rms_epsilon)
      .run(team_, workspace_, recurrent_rows(), net, layer_, layer.shape.state, mixer_.data());
}

void DecoderPass::add_mixed(const PackedMatrix& out) {
  const OperationScope scope(team_, Operation::mixer_out, layer_);
  input_.reset(num_rows_, {&out});
  round_rows(mixer_.data(), mixer_stride_, {});
  input_.multiply({{&out, delta_.data(), info_.dim}});
  delta_pending_ = true;
  delta_bias_ = delta_norm_ = nullptr;
}

void DecoderPass::run_mixer(const DecoderLayer& layer) {
  project_mixer_input(layer.mixer.in);
  Mamba2Mixer(weights_.mamba, weights_.states, kernels_, info_.rms_epsilon)
      .run(team_, workspace_, recurrent_rows(), layer.mixer, layer_, layer.shape.state, mixer_.data());
}

void DecoderPass::add_mixer(const DecoderLayer& layer) {
  const OperationScope scope(team_, Operation::mixer_out, layer_);
  input_.reset(num_rows_, {&layer.mixer.out});
  round_rows(mixer_.data(), mixer_stride_, {});
  add_to_pending(layer.mixer.out, {});
}

void DecoderPass::finish(const std::vector<float>& norm, float* hidden) {
  const OperationScope scope(team_, Operation::output_norm);
  for_each_row([&](std::size_t row) {
    float* x = residual_.data() + row * info_.dim;
    add_pending(x, row);
    apply_norm(x, norm, hidden + row * info_.dim);
  });
  delta_pending_ = false;
}

}  // namespace troupe::engine
