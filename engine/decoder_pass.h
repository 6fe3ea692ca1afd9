// The operations of a transformer layer over one ragged batch. Families put them in order.
//
// A pass holds the residual stream of every row (one row per token of the batch) and runs each
// operation over all rows with the team. No operation mixes rows but attention, which reads a
// sequence's own blocks: a row's bits do not depend on its neighbours.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "engine/attention_plan.h"
#include "engine/decoder_weights.h"
#include "engine/engine.h"
#include "engine/rounded_rows.h"
#include "engine/team.h"
#include "engine/workspace.h"

namespace troupe::engine {

class DecoderPass {
 public:
  DecoderPass(const DecoderWeights& weights, Team& team, std::span<const SequenceRows> batch, KvArena& arena,
              Workspace& workspace);

  // residual = the tokens' embeddings.
  void embed();
  // What follows belongs to this layer, as a profiler is told.
  void begin_layer(std::uint32_t layer) { layer_ = layer; }
  // input = rms_norm(residual) * norm, rounded as `consumers` want it. Sums a pending projection first.
  void norm(const std::vector<float>& norm, std::initializer_list<const PackedMatrix*> consumers);
  // q, k, v = input times the three matrices.
  void project_qkv(const DecoderLayer& layer);
  // Rotates q and k by their positions, and stores k and v in the sequences' blocks.
  void rotate_and_store();
  // Keeps only the rows whose hidden state is asked for; false if there are none. For the last layer,
  // between rotate_and_store and attend: nobody reads the others any more.
  [[nodiscard]] bool keep_only_outputs();
  // attention = softmax(q k / sqrt(head_dim)) v over the blocks, then this layer's blocks are done with.
  void attend();
  // input = attention, normed by `sub_norm` unless that is empty, rounded for `consumer`.
  void round_attention(const std::vector<float>& sub_norm, const PackedMatrix& consumer);
  // gated = silu(gate input) * (up input). Without a norm behind it, it is rounded for `layer.down` at once where the
  // kernels can.
  void gate_and_up(const DecoderLayer& layer);
  // input = gated, normed by `sub_norm` unless that is empty, rounded for `consumer`.
  void round_gated(const std::vector<float>& sub_norm, const PackedMatrix& consumer);
  // residual += matrix times input; the sum is made by the next norm().
  void add_projection(const PackedMatrix& matrix);
  // hidden = rms_norm(residual) * norm, for the rows that are left.
  void finish(const std::vector<float>& norm, float* hidden);
  // What attention has read of K and V so far.
  std::uint64_t kv_bytes_read() const { return attention_plan_.kv_bytes_read(); }

 private:
  using Sequence = SequencePlace;
  struct BlockRun {  // rows of one sequence that lie in one block: written by one thread
    std::uint32_t sequence = 0;
    std::uint32_t first = 0;  // among the sequence's rows
    std::uint32_t count = 0;
  };

  const DecoderLayer& this_layer() const { return weights_.layers[layer_]; }
  void place_rows(std::span<const SequenceRows> batch, KvArena& arena);
  void store_run(const BlockRun& run);

  // Runs fn(first_row, num_rows, thread) over all rows, at most kRowsAtOnce at a time and split at multiples of
  // `multiple`; few rows stay on the calling thread, without a join.
  static constexpr std::size_t kRowsAtOnce = kernels::kRowsPerTile;
  template <class Fn>
  void for_rows(std::size_t multiple, Fn&& fn);
  // input = rows of x[r * stride + i], normed in place by `sub_norm` unless that is empty.
  void round_rows(float* x, std::size_t stride, const std::vector<float>& sub_norm);
  // Room for kRowsAtOnce rows.
  float* thread_scratch(std::uint32_t thread) const { return scratch_.data() + thread * kRowsAtOnce * scratch_stride_; }

  const DecoderWeights& weights_;
  const kernels::KernelTable& kernels_;
  const ModelInfo& info_;
  Team& team_;
  Workspace& workspace_;
  kernels::KvShape kv_shape_;
  std::uint32_t layer_ = 0;
  std::size_t num_rows_ = 0;
  std::size_t q_dim_;
  std::size_t kv_dim_;
  std::size_t qkv_stride_;
  bool delta_pending_ = false;
  bool gated_is_input_ = false;  // gate_and_up has already rounded its result

  std::span<const SequenceRows> batch_;
  std::span<Sequence> sequences_;
  std::span<const std::byte*> blocks_;  // each block's part for the current layer
  std::span<BlockRun> runs_;
  std::span<float> residual_, delta_, qkv_, attention_, gate_, up_, scratch_;
  std::size_t scratch_stride_ = 0;
  AttentionPlan attention_plan_;
  RoundedRows input_;
};

}  // namespace troupe::engine
