// Layers with a mixture of experts as feed-forward part.
#include <algorithm>

#include "config/assert.h"
#include "engine/layers/decoder/decoder_pass.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

// Lower bound of the sum that expert weights are divided by: the smallest normal float16, as in other GGUF readers.
constexpr float kMinWeightSum = 0x1p-14f;

constexpr std::uint32_t kNoRow = 0xffffffffu;  // padding between two experts' rows

}  // namespace

void DecoderPass::add_experts(const ExpertWeights& moe) {
  const std::size_t num_experts = moe.experts.size(), dim = info_.dim, stride = num_experts + 1;
  const std::span<float> scores = workspace_.take<float>(Slot::expert_scores, num_rows_ * stride);
  std::span<float> shared;
  std::span<RowRun> runs;
  {
    const OperationScope scope(team_, Operation::ffn_gate_up, layer_);
    input_.multiply({{&moe.router, scores.data(), stride}, {&moe.shared_gate, scores.data() + num_experts, stride}});
    if (!moe.router_bias.empty())
      for_each_row(
          [&](std::size_t row) { kernels_.add(scores.data() + row * stride, moe.router_bias.data(), num_experts); });
    runs = choose_experts(moe, scores.data(), stride);
  }
  if (moe.shared_gate) {
    gate_and_up(moe.shared, true);
    round_gated({}, moe.shared.down);
    const OperationScope scope(team_, Operation::ffn_down, layer_);
    shared = workspace_.take<float>(Slot::shared_expert, num_rows_ * dim);
    input_.multiply({{&moe.shared.down, shared.data(), dim}});
  }
  const std::size_t ffn_dim = moe.experts.front().gate.rows(), num_positions = expert_rows_.size();
  {
    const OperationScope scope(team_, Operation::ffn_gate_up, layer_);
    reset_for_runs(moe, runs, {&FeedForward::gate, &FeedForward::up});
    gather_expert_rows();
    gate_ = workspace_.take<float>(Slot::gate, num_positions * ffn_dim);
    up_ = workspace_.take<float>(Slot::up, num_positions * ffn_dim);
    input_.for_runs(runs, moe.experts.front().gate.view().num_panels(), 2,
                    [&](std::size_t run, const PanelChunk& chunk) {
                      const FeedForward& expert = moe.experts[run_experts_[run]];
                      input_.multiply_panels({&expert.gate, gate_.data(), ffn_dim}, chunk);
                      input_.multiply_panels({&expert.up, up_.data(), ffn_dim}, chunk);
                      gate_chunk(expert, chunk);
                    });
  }
  {
    const OperationScope scope(team_, Operation::ffn_round, layer_);
    reset_for_runs(moe, runs, {&FeedForward::down});
    for_range(num_positions, kernels::kRowsPerTile, [&](std::size_t first, std::size_t, std::uint32_t) {
      input_.set_rows(first, rows_of_tile(first), gate_.data() + first * ffn_dim, ffn_dim);
    });
  }
  const OperationScope scope(team_, Operation::ffn_down, layer_);
  const std::span<float> parts = workspace_.take<float>(Slot::expert_parts, num_positions * dim);
  input_.for_runs(runs, moe.experts.front().down.view().num_panels(), 1, [&](std::size_t run, const PanelChunk& chunk) {
    input_.multiply_panels({&moe.experts[run_experts_[run]].down, parts.data(), dim}, chunk);
  });
  sum_experts(moe, scores.data(), stride, parts.data(), shared.data());
  delta_pending_ = true;
  delta_bias_ = delta_norm_ = nullptr;
}

// Chooses the best experts of every row; then lists the rows expert by expert, each expert's from a multiple of
// kRowsPerTile on.
std::span<RowRun> DecoderPass::choose_experts(const ExpertWeights& moe, float* scores, std::size_t stride) {
  const std::size_t num_experts = moe.experts.size(), used = info_.num_experts_used;
  choices_ = workspace_.take<Choice>(Slot::expert_choices, num_rows_ * used);
  for_each_row(
      [&](std::size_t row) { choose_for_row(moe, scores + row * stride, choices_.subspan(row * used, used)); });
  std::span<RowRun> all = workspace_.take<RowRun>(Slot::expert_runs, num_experts);
  std::fill(all.begin(), all.end(), RowRun{});
  for (const Choice& choice : choices_) ++all[choice.expert].num_rows;
  std::size_t num_positions = 0;
  for (RowRun& run : all) {
    run.first_row = num_positions;
    num_positions += divide_up(run.num_rows, kernels::kRowsPerTile) * kernels::kRowsPerTile;
    run.num_rows = 0;
  }
  expert_rows_ = workspace_.take<std::uint32_t>(Slot::expert_rows, num_positions);
  std::fill(expert_rows_.begin(), expert_rows_.end(), kNoRow);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    RowRun& run = all[choices_[i].expert];
    choices_[i].position = static_cast<std::uint32_t>(run.first_row + run.num_rows++);
    expert_rows_[choices_[i].position] = static_cast<std::uint32_t>(i / used);
  }
  // Only experts with at least one row are read.
  run_experts_ = workspace_.take<std::uint32_t>(Slot::run_experts, num_experts);
  std::size_t num_runs = 0;
  for (std::uint32_t expert = 0; expert < num_experts; ++expert) {
    if (all[expert].num_rows == 0) continue;
    run_experts_[num_runs] = expert;
    all[num_runs++] = all[expert];
  }
  return all.first(num_runs);
}

// Among equal scores the lowest expert wins. Weights are the softmax over all experts, or the sigmoid of each; `scores`
// are overwritten by its numerators, or by the sigmoid.
void DecoderPass::choose_for_row(const ExpertWeights& moe, float* scores, std::span<Choice> choices) const {
  const std::size_t num_experts = moe.experts.size();
  const bool is_sigmoid = weights_.traits.expert_gate == ExpertGate::sigmoid;
  if (is_sigmoid) kernels_.recurrent->map(kernels::Function::sigmoid, scores, scores, num_experts);
  const auto rank_of = [&](std::uint32_t expert) {
    return moe.choice_bias.empty() ? scores[expert] : scores[expert] + moe.choice_bias[expert];
  };
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    std::uint32_t best = kNoRow;
    for (std::uint32_t expert = 0; expert < num_experts; ++expert) {
      if (best != kNoRow && !(rank_of(expert) > rank_of(best))) continue;
      const auto is_taken = [&](const Choice& choice) { return choice.expert == expert; };
      if (!std::any_of(choices.begin(), choices.begin() + static_cast<std::ptrdiff_t>(rank), is_taken)) best = expert;
    }
    choices[rank] = {.expert = best};
  }
  float sum = is_sigmoid ? 1.0f : kernels_.exp_tile(scores, scores[choices[0].expert], 1.0f, scores, num_experts);
  if (weights_.traits.normalised_experts) {
    const float all = sum;
    sum = 0;
    for (const Choice& choice : choices) sum += scores[choice.expert];
    sum = std::max(sum, kMinWeightSum * all);
  }
  for (Choice& choice : choices) choice.weight = scores[choice.expert] / sum;
}

void DecoderPass::reset_for_runs(const ExpertWeights& moe, std::span<const RowRun> runs,
                                 std::initializer_list<PackedMatrix FeedForward::*> matrices) {
  const std::span<const PackedMatrix*> consumers =
      workspace_.take<const PackedMatrix*>(Slot::expert_consumers, runs.size() * matrices.size());
  std::size_t count = 0;
  for (std::size_t run = 0; run < runs.size(); ++run)
    for (PackedMatrix FeedForward::*matrix : matrices) consumers[count++] = &(moe.experts[run_experts_[run]].*matrix);
  input_.reset(expert_rows_.size(), consumers);
}

// The number of rows in a tile, without padding.
std::size_t DecoderPass::rows_of_tile(std::size_t first_position) const {
  const auto tile = expert_rows_.subspan(first_position, kernels::kRowsPerTile);
  return static_cast<std::size_t>(std::find(tile.begin(), tile.end(), kNoRow) - tile.begin());
}

void DecoderPass::gather_expert_rows() {
  for_range(expert_rows_.size(), kernels::kRowsPerTile, [&](std::size_t first, std::size_t, std::uint32_t thread) {
    float* const rows = thread_scratch(thread);
    const std::size_t count = rows_of_tile(first);
    for (std::size_t i = 0; i < count; ++i) {
      const float* const x = normed_.data() + std::size_t{expert_rows_[first + i]} * info_.dim;
      std::copy(x, x + info_.dim, rows + i * scratch_stride_);
    }
    input_.set_rows(first, count, rows, scratch_stride_);
  });
}

// Sums experts best first, the shared expert last: a row's order of summation does not depend on the other rows.
void DecoderPass::sum_experts(const ExpertWeights& moe, const float* scores, std::size_t stride, float* parts,
                              const float* shared) {
  const std::size_t used = info_.num_experts_used, dim = info_.dim;
  for_each_row([&](std::size_t row) {
    float* const out = delta_.data() + row * dim;
    for (std::size_t rank = 0; rank < used; ++rank) {
      const Choice& choice = choices_[row * used + rank];
      float* const part = parts + std::size_t{choice.position} * dim;
      const std::vector<float>& bias = moe.experts[choice.expert].down_bias;
      if (!bias.empty()) kernels_.add(part, bias.data(), dim);
      for (std::size_t i = 0; i < dim; ++i) out[i] = (rank == 0 ? 0.0f : out[i]) + choice.weight * part[i];
    }
    if (!shared) return;
    // sigmoid(x) = 1 / (1 + exp(-x))
    float exp_of_minus = 0;
    kernels_.exp_tile(scores + row * stride + stride - 1, 0.0f, -1.0f, &exp_of_minus, 1);
    const float weight = 1.0f / (1.0f + exp_of_minus);
    for (std::size_t i = 0; i < dim; ++i) out[i] += weight * shared[row * dim + i];
  });
}

}  // namespace troupe::engine
