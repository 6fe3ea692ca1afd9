// The operations of a transformer layer over one ragged batch. Families put them in order.
//
// Each operation runs over all rows with the team. No operation mixes rows but attention, which reads a sequence's own
// blocks: a row's bits do not depend on its neighbours.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/layers/decoder_weights.h"
#include "engine/layers/layer_pass.h"

namespace troupe::engine {

class DecoderPass : public LayerPass {
 public:
  DecoderPass(const DecoderWeights& weights, Team& team, std::span<const SequenceRows> batch, const CacheMemory& memory,
              Workspace& workspace);

  // residual = the tokens' embeddings, scaled where the model wants it.
  void embed() { LayerPass::embed(weights_.embedding_scale); }
  // What follows belongs to this layer, as a profiler is told.
  void begin_layer(std::uint32_t layer) { layer_ = layer; }
  // input = rms_norm(residual) * norm, rounded as `consumers` want it. Sums a pending projection first.
  void norm(const std::vector<float>& norm, std::initializer_list<const PackedMatrix*> consumers);
  // The same as input of a layer's router, its shared expert, and its experts.
  void norm(const std::vector<float>& norm, const ExpertWeights& consumer);
  // q, k, v = input times the three matrices.
  void project_qkv(const DecoderLayer& layer);
  // Adds biases to q, k and v, norms q and k, where the layer has such; rotates q and k by their positions, and stores
  // k and v in the sequences' blocks.
  void rotate_and_store();
  // Keeps only the rows whose hidden state is asked for; false if there are none. For the last layer,
  // between rotate_and_store and attend: nobody reads the others any more.
  [[nodiscard]] bool drop_rows_without_output();
  // attention = softmax(scaled q k, capped where the model says so) v over the blocks, of a layer with a window over
  // the last ones; then this layer's blocks are done with.
  void attend();
  // What a recurrent mixer beside attention makes of the input, which is normed for its `in` too: between project_qkv
  // and drop_rows_without_output.
  void run_mixer(const DecoderLayer& layer);
  // residual += the mixer's output projection, beside a pending one.
  void add_mixer(const DecoderLayer& layer);
  // input = attention, normed by `sub_norm` unless that is empty, rounded for `consumer`.
  void round_attention(const std::vector<float>& sub_norm, const PackedMatrix& consumer);
  // gated = gate(W_gate input) * (W_up input). `rounds`: there is no norm behind it, so it is rounded for W_down at
  // once where the kernels can.
  void gate_and_up(const FeedForward& ffn, bool rounds);
  // input = gated, normed by `sub_norm` unless that is empty, rounded for `consumer`.
  void round_gated(const std::vector<float>& sub_norm, const PackedMatrix& consumer);
  // residual += matrix times input, normed by `post_norm` unless that is empty; the sum is made by the next norm().
  void add_projection(const PackedMatrix& matrix, const std::vector<float>& post_norm = {});
  // residual += the sum of what its best experts make of a row, each times its weight; the sum is made by the next
  // norm(). Rows that share an expert meet it together, and no row's sum depends on which others do.
  void add_experts(const ExpertWeights& moe);
  // hidden = rms_norm(residual) * norm, for the rows that are left.
  void finish(const std::vector<float>& norm, float* hidden);
  // What attention has read of K and V so far.
  std::uint64_t kv_bytes_read() const { return full_.plan.kv_bytes_read() + window_.plan.kv_bytes_read(); }

 private:
  struct BlockRun {  // rows of one sequence that lie in one block: written by one thread
    std::uint32_t sequence = 0;
    std::uint32_t first = 0;  // among the sequence's rows
    std::uint32_t count = 0;
  };

  // Layers whose K and V lie in the same blocks.
  struct LayerGroup {
    std::span<const std::byte*> blocks;  // each block's part for the next of these layers; null before a window
    AttentionPlan plan;
  };
  struct Choice {  // one of a row's experts
    std::uint32_t expert = 0;
    std::uint32_t place = 0;  // of the row among all experts' rows
    float weight = 0;
  };

  const DecoderLayer& this_layer() const { return weights_.layers[layer_]; }
  LayerGroup& this_group() { return this_layer().has_window ? window_ : full_; }
  AttentionPlan plan_of(std::uint32_t window) const;
  void place_blocks(const CacheMemory& memory);
  void place_runs();
  void store_run(const BlockRun& run);
  void norm_rows(const std::vector<float>& norm, float* keep);
  void add_pending(float* x, std::size_t row);
  void gate_chunk(const PanelChunk& chunk, std::size_t dim);
  // decoder_experts.cpp
  std::span<RowRun> choose_experts(const ExpertWeights& moe, float* scores, std::size_t stride);
  void choose_for_row(float* scores, std::size_t num_experts, std::span<Choice> choices) const;
  void reset_for_runs(const ExpertWeights& moe, std::span<const RowRun> runs,
                      std::initializer_list<PackedMatrix FeedForward::*> matrices);
  std::size_t rows_of_tile(std::size_t first_place) const;
  void gather_expert_rows();
  void sum_experts(const float* scores, std::size_t stride, const float* parts, const float* shared);

  // input = rows of x[r * stride + i], normed in place by `sub_norm` unless that is empty.
  void round_rows(float* x, std::size_t stride, const std::vector<float>& sub_norm);
  // Room for kRowsAtOnce rows.
  float* thread_scratch(std::uint32_t thread) const { return scratch_.data() + thread * kRowsAtOnce * scratch_stride_; }

  const DecoderWeights& weights_;
  const ModelInfo& info_;
  kernels::KvShape kv_shape_;
  std::uint32_t layer_ = 0;
  std::size_t q_dim_;
  std::size_t kv_dim_;
  std::size_t qkv_stride_;
  kernels::SiluMul* gate_mul_;                      // or a sister of it
  const std::vector<float>* delta_norm_ = nullptr;  // of what is pending
  bool gated_is_input_ = false;                     // gate_and_up has already rounded its result

  std::span<BlockRun> runs_;
  std::span<float> qkv_, attention_, gate_, up_, scratch_;
  std::size_t scratch_stride_ = 0;
  LayerGroup full_, window_;
  std::span<float> mixer_;  // what the mixer leaves, rows of mixer_stride_
  std::size_t mixer_stride_ = 0;
  std::span<float> normed_;               // what experts read
  std::span<Choice> choices_;             // [rows][experts used], best first
  std::span<std::uint32_t> expert_rows_;  // which row stands at each place
  std::span<std::uint32_t> run_experts_;  // whose each run of rows is
};

}  // namespace troupe::engine
