#include "engine/layers/encoder_pass.h"

#include <algorithm>
#include <cmath>

#include "config/assert.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;
using kernels::kSplitPositions;

constexpr std::uint32_t kItemRows = 128;  // query rows per item: each block is expanded once for all of them
constexpr std::size_t kRowsAtOnce = kernels::kRowsPerTile;

void layer_norm(const kernels::KernelTable& kernels, float* x, const LayerNormWeights& norm, float epsilon) {
  kernels.recurrent->layer_norm(x, norm.weight.data(), norm.bias.data(), x, norm.weight.size(), epsilon);
}

}  // namespace

EncoderPass::EncoderPass(const EncoderWeights& weights, Team& team, std::span<const std::span<const TokenId>> texts,
                         Workspace& workspace)
    : weights_(weights),
      kernels_(*weights.kernels),
      info_(weights.info),
      team_(team),
      workspace_(workspace),
      kv_shape_{.type = weights.cache.kv_type, .num_kv_heads = info_.num_heads, .head_dim = info_.head_dim},
      dim_(info_.dim),
      qkv_stride_(3 * dim_),
      input_(kernels_, team, workspace) {
  {
    const OperationScope scope(team, Operation::prepare);
    list_rows(texts);
  }
  residual_ = workspace.take<float>(Slot::residual, num_rows_ * dim_);
  delta_ = workspace.take<float>(Slot::delta, num_rows_ * dim_);
  qkv_ = workspace.take<float>(Slot::qkv, num_rows_ * qkv_stride_);
  attention_ = workspace.take<float>(Slot::attention, num_rows_ * dim_);
  if (weights.layers[0].gate) gate_ = workspace.take<float>(Slot::gate, num_rows_ * info_.ffn_dim);
  up_ = workspace.take<float>(Slot::up, num_rows_ * info_.ffn_dim);
  embed(texts);
}

void EncoderPass::list_rows(std::span<const std::span<const TokenId>> texts) {
  texts_ = workspace_.take<SequencePlace>(Slot::sequences, texts.size());
  std::size_t num_blocks = 0, num_items = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TROUPE_ASSERT(!texts[i].empty() && texts[i].size() <= info_.context);
    texts_[i] = {.first_row = static_cast<std::uint32_t>(num_rows_),
                 .num_rows = static_cast<std::uint32_t>(texts[i].size()),
                 .first_block = static_cast<std::uint32_t>(num_blocks)};
    num_rows_ += texts[i].size();
    num_blocks += blocks_for(texts_[i].num_rows);
    num_items += divide_up(texts_[i].num_rows, kItemRows) * info_.num_heads;
  }
  const std::size_t block_bytes = kv_shape_.layer_bytes();
  std::byte* const kv = workspace_.take<std::byte>(Slot::encoder_kv, num_blocks * block_bytes).data();
  blocks_ = workspace_.take<const std::byte*>(Slot::blocks, num_blocks);
  block_rows_ = workspace_.take<BlockRows>(Slot::block_runs, num_blocks);
  items_ = workspace_.take<Item>(Slot::attention_items, num_items);
  std::size_t item = 0, block = 0;
  for (std::uint32_t i = 0; i < texts_.size(); ++i) {
    const std::uint32_t num_rows = texts_[i].num_rows;
    for (std::uint32_t first = 0; first < num_rows; first += kItemRows)
      for (std::uint32_t head = 0; head < info_.num_heads; ++head)
        items_[item++] = {i, head, first, std::min(kItemRows, num_rows - first)};
    for (std::uint32_t first = 0; first < num_rows; first += kBlockSize, ++block) {
      block_rows_[block] = {i, first, std::min(kBlockSize, num_rows - first), kv + block * block_bytes};
      blocks_[block] = block_rows_[block].kv;
    }
    // Slots after a text's end get attention weights of zero, but they are multiplied, so they must be finite.
    const BlockRows& last = block_rows_[block - 1];
    if (last.count < kBlockSize) kernels::clear_kv(kv_shape_, last.kv, last.count);
  }
  buffer_bytes_ = AttentionBuffers::bytes(kItemRows, kItemRows, info_.head_dim);
  buffers_ = workspace_.take<std::byte>(Slot::attention_buffers, team_.num_threads() * buffer_bytes_);
}

template <class Fn>
void EncoderPass::timed(Operation operation, std::uint32_t layer, Fn&& fn) {
  const OperationScope scope(team_, operation, layer);
  fn();
}

template <class Fn>
void EncoderPass::for_rows(Fn&& fn) {
  team_.parallel_for(divide_up(num_rows_, kRowsAtOnce), [&](std::size_t tile, std::uint32_t) {
    fn(tile * kRowsAtOnce, std::min(kRowsAtOnce, num_rows_ - tile * kRowsAtOnce));
  });
}

void EncoderPass::embed(std::span<const std::span<const TokenId>> texts) {
  const OperationScope scope(team_, Operation::embed);
  team_.parallel_for(block_rows_.size(), [&](std::size_t i, std::uint32_t) {
    const BlockRows& block = block_rows_[i];
    for (std::uint32_t position = block.first; position < block.first + block.count; ++position) {
      const std::size_t at = (texts_[block.text].first_row + position) * dim_;
      float* const row = residual_.data() + at;
      const TokenId token = texts[block.text][position];
      TROUPE_ASSERT(token >= 0 && static_cast<std::uint32_t>(token) < info_.vocab_size);
      kernels::unpack_row(weights_.embedding.view(), static_cast<std::size_t>(token), row);
      if (!weights_.token_type.empty()) kernels_.add(row, weights_.token_type.data(), dim_);
      if (weights_.positions) {
        float* const learned = delta_.data() + at;  // delta_ is free at this point
        kernels::unpack_row(weights_.positions.view(), position, learned);
        kernels_.add(row, learned, dim_);
      }
      layer_norm(kernels_, row, weights_.embedding_norm, weights_.epsilon);
    }
  });
}

std::span<const float> EncoderPass::run() {
  const auto num_layers = static_cast<std::uint32_t>(weights_.layers.size());
  const EncoderLayer& first = weights_.layers.front();
  timed(Operation::attn_norm, 0, [&] { round({&first.q, &first.k, &first.v}, residual_.data(), dim_); });
  for (std::uint32_t i = 0; i < num_layers; ++i) {
    const EncoderLayer& layer = weights_.layers[i];
    timed(Operation::attn_qkv, i, [&] { project(layer); });
    timed(Operation::rope_store, i, [&] { rotate_and_store(layer); });
    timed(Operation::attention, i, [&] {
      team_.parallel_for(items_.size(), [&](std::size_t item, std::uint32_t thread) {
        attend(layer, items_[item], {buffers_.data() + thread * buffer_bytes_, kItemRows, kItemRows, info_.head_dim});
      });
    });
    timed(Operation::attn_round, i, [&] { round({&layer.o}, attention_.data(), dim_); });
    timed(Operation::attn_output, i, [&] { input_.multiply({{&layer.o, delta_.data(), dim_}}); });
    timed(Operation::ffn_norm, i, [&] { add_and_norm(layer.o_bias, layer.attn_norm, {&layer.up, &layer.gate}); });
    timed(Operation::ffn_gate_up, i, [&] {
      input_.multiply({{&layer.gate, gate_.data(), info_.ffn_dim}, {&layer.up, up_.data(), info_.ffn_dim}});
    });
    timed(Operation::ffn_round, i, [&] { activate(layer); });
    timed(Operation::ffn_down, i, [&] { input_.multiply({{&layer.down, delta_.data(), dim_}}); });
    if (i + 1 < num_layers) {
      const EncoderLayer& next = weights_.layers[i + 1];
      timed(Operation::attn_norm, i + 1, [&] {
        add_and_norm(layer.down_bias, layer.ffn_norm, {&next.q, &next.k, &next.v});
      });
    } else {
      timed(Operation::output_norm, kNoLayer, [&] { add_and_norm(layer.down_bias, layer.ffn_norm, {}); });
    }
  }
  return residual_;
}

void EncoderPass::round(std::initializer_list<const PackedMatrix*> consumers, const float* rows, std::size_t stride) {
  input_.reset(num_rows_, consumers);
  for_rows([&](std::size_t row, std::size_t count) { input_.set_rows(row, count, rows + row * stride, stride); });
}

void EncoderPass::add_and_norm(const std::vector<float>& bias, const LayerNormWeights& norm,
                               std::initializer_list<const PackedMatrix*> consumers) {
  if (consumers.size() > 0) input_.reset(num_rows_, consumers);
  for_rows([&](std::size_t row, std::size_t count) {
    float* const x = residual_.data() + row * dim_;
    kernels_.add(x, delta_.data() + row * dim_, count * dim_);
    for (std::size_t i = 0; i < count; ++i) {
      if (!bias.empty()) kernels_.add(x + i * dim_, bias.data(), dim_);
      layer_norm(kernels_, x + i * dim_, norm, weights_.epsilon);
    }
    if (consumers.size() > 0) input_.set_rows(row, count, x, dim_);
  });
}

void EncoderPass::project(const EncoderLayer& layer) {
  float* const out = qkv_.data();
  input_.multiply(
      {{&layer.q, out, qkv_stride_}, {&layer.k, out + dim_, qkv_stride_}, {&layer.v, out + 2 * dim_, qkv_stride_}});
}

void EncoderPass::rotate_and_store(const EncoderLayer& layer) {
  float* const out = qkv_.data();
  const RopeTable& rope = weights_.rope;
  // One thread per block: neighbouring positions share cache lines.
  team_.parallel_for(block_rows_.size(), [&](std::size_t i, std::uint32_t) {
    const BlockRows& block = block_rows_[i];
    for (std::uint32_t position = block.first; position < block.first + block.count; ++position) {
      float* const row = out + (texts_[block.text].first_row + position) * qkv_stride_;
      if (!layer.qkv_bias.empty()) kernels_.add(row, layer.qkv_bias.data(), layer.qkv_bias.size());
      for (std::size_t at = 0; rope.rotated() != 0 && at < 2 * dim_; at += info_.head_dim)
        kernels_.rope(row + at, rope.cos(position), rope.sin(position), rope.rotated());
      kernels_.store_kv(kv_shape_, block.kv, position - block.first, row + dim_, row + 2 * dim_);
    }
  });
}

// Attention split by split as in a decoder, but every row sees the whole text.
void EncoderPass::attend(const EncoderLayer& layer, const Item& item, const AttentionBuffers& buffers) {
  const SequencePlace& text = texts_[item.text];
  const std::size_t partial = kernels::partial_floats(info_.head_dim);
  const std::size_t begin = text.first_row + item.first;
  for (std::uint32_t split = 0; split * kSplitPositions < text.num_rows; ++split) {
    float* const into = split == 0 ? buffers.totals : buffers.partials;
    for (std::uint32_t i = 0; i < item.count; ++i)
      buffers.rows[i] = {.q = qkv_.data() + (begin + i) * qkv_stride_ + item.head * info_.head_dim,
                         .partial = into + i * partial,
                         .num_seen = std::min(text.num_rows - split * kSplitPositions, kSplitPositions)};
    kernels_.attend_split({.shape = kv_shape_,
                           .kv_head = item.head,
                           .blocks = blocks_.data() + text.first_block + split * kernels::kSplitBlocks,
                           .next_block = nullptr,
                           .rows = {buffers.rows, item.count},
                           .scale = 1.0f / std::sqrt(static_cast<float>(info_.head_dim)),
                           .scratch = buffers.kernel});
    for (std::uint32_t i = 0; split > 0 && i < item.count; ++i)
      kernels_.merge_partial(buffers.partials + i * partial, info_.head_dim, buffers.totals + i * partial);
  }
  for (std::uint32_t i = 0; i < item.count; ++i) {
    float* const out = attention_.data() + (begin + i) * dim_ + item.head * info_.head_dim;
    kernels_.finish_attention(buffers.totals + i * partial, info_.head_dim, out);
    if (!layer.value_bias.empty())
      kernels_.add(out, layer.value_bias.data() + item.head * info_.head_dim, info_.head_dim);
  }
}

void EncoderPass::activate(const EncoderLayer& layer) {
  const std::size_t ffn_dim = info_.ffn_dim;
  input_.reset(num_rows_, {&layer.down});
  for_rows([&](std::size_t row, std::size_t count) {
    float* const x = up_.data() + row * ffn_dim;
    for (std::size_t i = 0; i < count; ++i) {
      float* const one = x + i * ffn_dim;
      if (!layer.up_bias.empty()) kernels_.add(one, layer.up_bias.data(), ffn_dim);
      if (layer.gate) {
        kernels_.silu_mul(gate_.data() + (row + i) * ffn_dim, one, one, ffn_dim);
      } else {
        kernels_.recurrent->map(kernels::Function::gelu_erf, one, one, ffn_dim);
      }
    }
    input_.set_rows(row, count, x, ffn_dim);
  });
}

}  // namespace troupe::engine
