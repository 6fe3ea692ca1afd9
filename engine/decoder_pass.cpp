#include "engine/decoder_pass.h"

#include <algorithm>
#include <cstring>

#include "config/assert.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

// Rows that one thread works through before another helps: a row costs about a microsecond, a join two.
constexpr std::size_t kMinRowsPerChunk = 4;
// The same where they are rotated and stored: eight sequences that decode are not worth a join.
constexpr std::size_t kMinRowsPerStore = 8;
constexpr std::size_t kChunksPerThread = 8;

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

DecoderPass::DecoderPass(const DecoderWeights& weights, Team& team, std::span<const SequenceRows> batch, KvArena& arena,
                         Workspace& workspace)
    : weights_(weights),
      kernels_(*weights.kernels),
      info_(weights.info),
      team_(team),
      workspace_(workspace),
      kv_shape_{.type = weights.cache.kv_type, .num_kv_heads = info_.num_kv_heads, .head_dim = info_.head_dim},
      q_dim_(std::size_t{info_.num_heads} * info_.head_dim),
      kv_dim_(std::size_t{info_.num_kv_heads} * info_.head_dim),
      qkv_stride_(q_dim_ + 2 * kv_dim_),
      batch_(batch),
      attention_plan_(kernels_, kv_shape_, info_.num_heads, team, workspace),
      input_(kernels_, team, workspace) {
  const OperationScope scope(team, Operation::prepare);
  place_rows(batch, arena);
  attention_plan_.make(sequences_, blocks_);
  residual_ = workspace.take<float>(Slot::residual, num_rows_ * info_.dim);
  delta_ = workspace.take<float>(Slot::delta, num_rows_ * info_.dim);
  qkv_ = workspace.take<float>(Slot::qkv, num_rows_ * qkv_stride_);
  attention_ = workspace.take<float>(Slot::attention, num_rows_ * qkv_stride_);
  gate_ = workspace.take<float>(Slot::gate, num_rows_ * info_.ffn_dim);
  up_ = workspace.take<float>(Slot::up, num_rows_ * info_.ffn_dim);
  // An odd number of cache lines: the same place of 16 rows must not fall into one set of the cache.
  scratch_stride_ = (divide_up(info_.dim, 16) | 1) * 16;
  scratch_ = workspace.take<float>(Slot::thread_scratch, team.num_threads() * kRowsAtOnce * scratch_stride_);
}

void DecoderPass::place_rows(std::span<const SequenceRows> batch, KvArena& arena) {
  sequences_ = workspace_.take<Sequence>(Slot::sequences, batch.size());
  std::size_t num_blocks = 0;
  std::size_t num_runs = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const SequenceRows& rows = batch[i];
    const auto count = static_cast<std::uint32_t>(rows.tokens.size());
    TROUPE_ASSERT(count >= 1 && rows.num_outputs <= count && rows.first_position + count <= info_.context);
    sequences_[i] = {.first_row = static_cast<std::uint32_t>(num_rows_),
                     .num_rows = count,
                     .first_position = rows.first_position,
                     .num_outputs = rows.num_outputs,
                     .first_block = static_cast<std::uint32_t>(num_blocks)};
    const std::uint32_t used = blocks_for(rows.first_position + count);
    TROUPE_ASSERT(used <= rows.block_table.size());
    num_rows_ += count;
    num_blocks += used;
    num_runs += used - rows.first_position / kBlockSize;
  }
  blocks_ = workspace_.take<const std::byte*>(Slot::blocks, num_blocks);
  runs_ = workspace_.take<BlockRun>(Slot::block_runs, num_runs);
  std::size_t run = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    const std::uint32_t end = sequence.first_position + sequence.num_rows;
    for (std::uint32_t block = 0; block < blocks_for(end); ++block) {
      blocks_[sequence.first_block + block] = arena.block(batch[i].block_table[block]);
    }
    for (std::uint32_t position = sequence.first_position; position < end;) {
      const std::uint32_t next = std::min(end, (position / kBlockSize + 1) * kBlockSize);
      runs_[run++] = {static_cast<std::uint32_t>(i), position - sequence.first_position, next - position};
      position = next;
    }
  }
}

template <class Fn>
void DecoderPass::for_rows(std::size_t multiple, Fn&& fn) {
  const std::size_t fair = divide_up(num_rows_, team_.num_threads() * kChunksPerThread);
  const std::size_t per_chunk = divide_up(std::max(kMinRowsPerChunk, fair), multiple) * multiple;
  team_.parallel_for(divide_up(num_rows_, per_chunk), [&](std::size_t chunk, std::uint32_t thread) {
    const std::size_t end = std::min(num_rows_, (chunk + 1) * per_chunk);
    for (std::size_t row = chunk * per_chunk; row < end; row += kRowsAtOnce)
      fn(row, std::min(kRowsAtOnce, end - row), thread);
  });
}

void DecoderPass::embed() {
  const OperationScope scope(team_, Operation::embed);
  // Rows follow the batch: sequence by sequence, token by token.
  std::span<TokenId> tokens = workspace_.take<TokenId>(Slot::tokens, num_rows_);
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    std::copy(batch_[i].tokens.begin(), batch_[i].tokens.end(), tokens.begin() + sequences_[i].first_row);
  }
  for_rows(1, [&](std::size_t first, std::size_t count, std::uint32_t) {
    for (std::size_t row = first; row < first + count; ++row) {
      TROUPE_ASSERT(tokens[row] >= 0 && static_cast<std::uint32_t>(tokens[row]) < info_.vocab_size);
      kernels::unpack_row(weights_.embedding.view(), static_cast<std::size_t>(tokens[row]),
                          residual_.data() + row * info_.dim);
    }
  });
}

void DecoderPass::norm(const std::vector<float>& norm, std::initializer_list<const PackedMatrix*> consumers) {
  const OperationScope scope(team_, &norm == &this_layer().attn_norm ? Operation::attn_norm : Operation::ffn_norm,
                             layer_);
  input_.reset(num_rows_, consumers);
  for_rows(input_.rows_at_once(), [&](std::size_t first, std::size_t count, std::uint32_t thread) {
    float* normed = thread_scratch(thread);
    for (std::size_t i = 0; i < count; ++i) {
      float* x = residual_.data() + (first + i) * info_.dim;
      if (delta_pending_) kernels_.add(x, delta_.data() + (first + i) * info_.dim, info_.dim);
      kernels_.rms_norm(x, norm.data(), normed + i * scratch_stride_, info_.dim, info_.rms_epsilon);
    }
    input_.set_rows(first, count, normed, scratch_stride_);
  });
  delta_pending_ = false;
}

void DecoderPass::project_qkv(const DecoderLayer& layer) {
  const OperationScope scope(team_, Operation::attn_qkv, layer_);
  float* out = qkv_.data();
  input_.multiply({{&layer.q, out, qkv_stride_},
                   {&layer.k, out + q_dim_, qkv_stride_},
                   {&layer.v, out + q_dim_ + kv_dim_, qkv_stride_}});
}

void DecoderPass::rotate_and_store() {
  const OperationScope scope(team_, Operation::rope_store, layer_);
  // A run never splits a block among threads: neighbouring positions share cache lines there.
  const std::size_t runs_per_chunk = divide_up(kMinRowsPerStore * runs_.size(), num_rows_);
  team_.parallel_for(divide_up(runs_.size(), runs_per_chunk), [&](std::size_t chunk, std::uint32_t) {
    const std::size_t end = std::min(runs_.size(), (chunk + 1) * runs_per_chunk);
    for (std::size_t i = chunk * runs_per_chunk; i < end; ++i) store_run(runs_[i]);
  });
}

void DecoderPass::store_run(const BlockRun& run) {
  const Sequence& sequence = sequences_[run.sequence];
  const RopeTable& rope = weights_.rope;
  for (std::uint32_t i = run.first; i < run.first + run.count; ++i) {
    const std::uint32_t position = sequence.first_position + i;
    float* q = qkv_.data() + (sequence.first_row + i) * qkv_stride_;
    float* k = q + q_dim_;
    for (std::size_t at = 0; at < q_dim_ + kv_dim_; at += info_.head_dim) {
      kernels_.rope(q + at, rope.cos(position), rope.sin(position), rope.rotated());
    }
    // The arena is ours to write; readers of these positions come after the join.
    auto* block = const_cast<std::byte*>(blocks_[sequence.first_block + position / kBlockSize]);
    kernels_.store_kv(kv_shape_, block, position % kBlockSize, k, k + kv_dim_);
  }
}

bool DecoderPass::keep_only_outputs() {
  std::size_t kept = 0;
  for (Sequence& sequence : sequences_) {
    const std::uint32_t skipped = sequence.num_rows - sequence.num_outputs;
    for (std::uint32_t i = 0; i < sequence.num_outputs; ++i) {
      const std::size_t from = sequence.first_row + skipped + i;
      const std::size_t to = kept + i;
      if (from == to) continue;
      std::memcpy(residual_.data() + to * info_.dim, residual_.data() + from * info_.dim, info_.dim * sizeof(float));
      std::memcpy(qkv_.data() + to * qkv_stride_, qkv_.data() + from * qkv_stride_, q_dim_ * sizeof(float));
    }
    sequence.first_row = static_cast<std::uint32_t>(kept);
    sequence.first_position += skipped;
    sequence.num_rows = sequence.num_outputs;
    kept += sequence.num_outputs;
  }
  TROUPE_ASSERT(!delta_pending_);
  if (kept != num_rows_ && kept != 0) attention_plan_.make(sequences_, blocks_);
  num_rows_ = kept;
  return kept != 0;
}

void DecoderPass::attend() {
  const OperationScope scope(team_, Operation::attention, layer_);
  attention_plan_.attend(qkv_.data(), attention_.data(), qkv_stride_);
  for (const std::byte*& block : blocks_) block += kv_shape_.layer_bytes();
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

void DecoderPass::gate_and_up(const DecoderLayer& layer) {
  const OperationScope scope(team_, Operation::ffn_gate_up, layer_);
  gated_is_input_ = layer.ffn_sub_norm.empty() && input_.advance_gated(layer.gate, layer.up, layer.down);
  if (gated_is_input_) return;
  const Product gate{&layer.gate, gate_.data(), info_.ffn_dim};
  const Product up{&layer.up, up_.data(), info_.ffn_dim};
  input_.for_panels(layer.gate.view().num_panels(), 2, [&](const PanelChunk& chunk) {
    input_.multiply_panels(gate, chunk);
    input_.multiply_panels(up, chunk);
    const std::size_t column = chunk.panel_begin * kernels::kPanelRows;
    const std::size_t count = std::min<std::size_t>(chunk.panel_end * kernels::kPanelRows, info_.ffn_dim) - column;
    for (std::size_t row = chunk.first_row; row < chunk.first_row + chunk.num_rows; ++row) {
      float* out = gate_.data() + row * info_.ffn_dim + column;
      kernels_.silu_mul(out, up_.data() + row * info_.ffn_dim + column, out, count);
    }
  });
}

void DecoderPass::round_gated(const std::vector<float>& sub_norm, const PackedMatrix& consumer) {
  if (gated_is_input_) return;
  const OperationScope scope(team_, Operation::ffn_round, layer_);
  input_.reset(num_rows_, {&consumer});
  round_rows(gate_.data(), info_.ffn_dim, sub_norm);
}

void DecoderPass::add_projection(const PackedMatrix& matrix) {
  const OperationScope scope(team_, &matrix == &this_layer().o ? Operation::attn_output : Operation::ffn_down, layer_);
  input_.multiply({{&matrix, delta_.data(), info_.dim}});
  delta_pending_ = true;
}

void DecoderPass::finish(const std::vector<float>& norm, float* hidden) {
  const OperationScope scope(team_, Operation::output_norm);
  for_rows(1, [&](std::size_t first, std::size_t count, std::uint32_t) {
    for (std::size_t row = first; row < first + count; ++row) {
      float* x = residual_.data() + row * info_.dim;
      if (delta_pending_) kernels_.add(x, delta_.data() + row * info_.dim, info_.dim);
      kernels_.rms_norm(x, norm.data(), hidden + row * info_.dim, info_.dim, info_.rms_epsilon);
    }
  });
  delta_pending_ = false;
}

}  // namespace troupe::engine
