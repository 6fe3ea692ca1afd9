// The operations of a transformer layer over one ragged batch. Families call them in their order.
//
// Each operation runs over all rows with the team. Only attention reads other rows, through the sequence's own blocks:
// a row's bits do not depend on other sequences.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "cache/group.h"
#include "engine/layers/decoder/decoder_weights.h"
#include "engine/layers/layer_pass.h"
#include "engine/memory/kv_arena.h"
#include "engine/model.h"

namespace troupe::engine {

class DecoderPass : public LayerPass {
 public:
  DecoderPass(const DecoderWeights& weights, Team& team, std::span<const SequenceRows> batch, const KvArenas& arenas,
              Workspace& workspace);

  // residual = the tokens' embeddings, times the model's embedding scale.
  void embed() { LayerPass::embed(weights_.embedding_scale); }
  // Sets the layer of the following operations.
  void begin_layer(std::uint32_t layer) { layer_ = layer; }
  // input = the residual normed with `norm` unless it is empty, rounded for `consumers`. Adds a pending projection
  // first. `keeps`: prepare_normed() follows in this layer.
  void norm(const std::vector<float>& norm, std::initializer_list<const PackedMatrix*> consumers, bool keeps = false);
  // input = the rows that norm() kept, rounded for `consumers`.
  void prepare_normed(std::initializer_list<const PackedMatrix*> consumers);
  // The same with a mixture of experts as consumer: its router, shared expert and experts.
  void norm(const std::vector<float>& norm, const ExpertWeights& consumer);
  // q, k, v = input times the three matrices; q alone in a layer that attends to an earlier one's K and V.
  void project_qkv(const DecoderLayer& layer);
  // Adds biases to q, k and v and norms q and k if the layer has them; rotates q and k by their positions, and stores k
  // and v in the sequences' blocks.
  void rotate_and_store();
  // Keeps only output rows; false if there are none. For the last layer, once K and V are stored and states updated: no
  // later operation reads the other rows.
  [[nodiscard]] bool drop_rows_without_output();
  // attention = softmax(scaled q k, capped if the model has a cap) v over the blocks, in a layer with a window over the
  // last ones.
  void attend();
  // Runs the recurrent mixer beside attention on the input, which norm() also rounded for the mixer's `in`: between
  // project_qkv and drop_rows_without_output.
  void run_mixer(const DecoderLayer& layer);
  // residual += the mixer's output projection, in addition to a pending one.
  void add_mixer(const DecoderLayer& layer);
  // attention *= the sigmoid of the gate that project_qkv computed, in a layer that has one.
  void gate_attention();
  // Runs the gated delta net on the input, which norm() rounded for its matrices.
  void run_delta_net(const DecoderLayer& layer);
  // Runs the short convolution on the input, which norm() rounded for its `in`.
  void run_convolution(const DecoderLayer& layer);
  // residual += `out`, the output projection of what stands in the place of attention.
  void add_mixed(const PackedMatrix& out);
  // input = attention, normed with `sub_norm` unless it is empty, rounded for `consumer`.
  void round_attention(const std::vector<float>& sub_norm, const PackedMatrix& consumer);
  // gated = gate(W_gate input) * (W_up input), or gelu(W_up input) without a gate. `rounds`: no norm follows, so
  // kernels that can do it round the result for W_down directly.
  void gate_and_up(const FeedForward& ffn, bool rounds);
  // input = gated, normed with `sub_norm` unless it is empty, rounded for `consumer`.
  void round_gated(const std::vector<float>& sub_norm, const PackedMatrix& consumer);
  // residual += matrix times input, plus `bias`, normed with `post_norm` unless it is empty; the next norm() does the
  // addition. If another projection is pending, both are added.
  void add_projection(const PackedMatrix& matrix, const std::vector<float>& bias = {},
                      const std::vector<float>& post_norm = {});
  // residual += the weighted sum of a row's best experts; the next norm() does the addition. Rows of the same expert
  // are multiplied together; a row's sum does not depend on the other rows.
  void add_experts(const ExpertWeights& moe);
  // hidden = the residual normed with `norm`, for the remaining rows.
  void finish(const std::vector<float>& norm, float* hidden);
  // Bytes of K and V that attention has read so far.
  std::uint64_t kv_bytes_read() const;

 private:
  struct BlockRows {  // rows of one sequence in one block: written by one thread
    std::uint32_t sequence = 0;
    std::uint32_t first = 0;  // among the sequence's rows
    std::uint32_t count = 0;
  };

  // The blocks of a cache group.
  struct GroupBlocks {
    std::span<const std::byte*> parts;  // each block's part for one layer; null before a window
    std::uint64_t offset = 0;           // of that part
  };
  struct Choice {  // one of a row's experts
    std::uint32_t expert = 0;
    std::uint32_t position = 0;  // of the row in expert_rows_
    float weight = 0;
  };

  const DecoderLayer& this_layer() const { return weights_.layers[layer_]; }
  AttentionPlan& this_plan() { return *plans_[this_layer().shape.plan]; }
  std::span<const std::byte* const> this_layers_blocks() const {
    return groups_[this_layer().shape.attention.group].parts;
  }
  void list_blocks(const KvArenas& arenas);
  void plan_attention();
  void go_to_layers_blocks();
  void list_block_rows();
  void store_rows(const BlockRows& run);
  void apply_norm(const float* x, const std::vector<float>& norm, float* out) const;
  void norm_heads(float* x, const std::vector<float>& norm, std::size_t dim) const;
  void norm_rows(const std::vector<float>& norm, float* keep);
  void add_pending(float* x, std::size_t row);
  void add_to_pending(const PackedMatrix& matrix, const std::vector<float>& bias);
  void gate_chunk(const FeedForward& ffn, const PanelChunk& chunk);
  void project_mixer_input(const PackedMatrix& matrix);
  std::size_t mixed_width() const;
  // Of attention_gate_'s rows; 0: the layer has no gate.
  std::size_t gate_width() const { return this_layer().attention_gate ? this_layer().shape.attention.q_dim() : 0; }
  RecurrentRows recurrent_rows() const;
  // decoder_experts.cpp
  std::span<RowRun> choose_experts(const ExpertWeights& moe, float* scores, std::size_t stride);
  void choose_for_row(const ExpertWeights& moe, float* scores, std::span<Choice> choices) const;
  void reset_for_runs(const ExpertWeights& moe, std::span<const RowRun> runs,
                      std::initializer_list<PackedMatrix FeedForward::*> matrices);
  std::size_t rows_of_tile(std::size_t first_position) const;
  void gather_expert_rows();
  void sum_experts(const ExpertWeights& moe, const float* scores, std::size_t stride, float* parts,
                   const float* shared);

  // input = rows of x[r * stride + i], normed in place with `sub_norm` unless it is empty.
  void round_rows(float* x, std::size_t stride, const std::vector<float>& sub_norm);
  // Holds kRowsAtOnce rows.
  float* thread_scratch(std::uint32_t thread) const { return scratch_.data() + thread * kRowsAtOnce * scratch_stride_; }

  const DecoderWeights& weights_;
  const ModelInfo& info_;
  std::uint32_t layer_ = 0;
  std::size_t qkv_stride_ = 0;                      // of the widest layer
  kernels::SiluMul* gate_mul_;                      // or gelu_mul, relu2_mul
  const std::vector<float>* delta_norm_ = nullptr;  // of the pending projection; null: none
  const std::vector<float>* delta_bias_ = nullptr;
  bool gated_is_input_ = false;  // gate_and_up has already rounded its result

  std::span<BlockRows> block_rows_;
  std::span<float> qkv_, attention_, gate_, up_, scratch_;
  std::span<float> attention_gate_;  // [rows, num_heads * head_dim]
  std::size_t scratch_stride_ = 0;
  std::array<GroupBlocks, cache::kMaxGroups> groups_;
  std::array<std::optional<AttentionPlan>, kMaxPlans> plans_;
  std::span<float> mixer_;  // output of the mixer, rows of mixer_stride_
  std::size_t mixer_stride_ = 0;
  std::span<float> normed_;               // input of the experts, or of a parallel feed-forward part
  std::span<Choice> choices_;             // [rows][experts used], best first
  std::span<std::uint32_t> expert_rows_;  // the row at each index of the experts' rows
  std::span<std::uint32_t> run_experts_;  // the expert of each range of rows
};

}  // namespace troupe::engine
