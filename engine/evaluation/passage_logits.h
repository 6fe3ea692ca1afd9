// Raw logits of passages of tokens, several passages at once, for perplexity and the comparison of two models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

// Tokens of one step, all passages together; more would make the step buffers larger and nothing faster.
inline constexpr std::uint32_t kPassageStepTokens = 512;

// How many passages of `length` tokens fill a step.
[[nodiscard]] constexpr std::uint32_t passages_at_once(std::uint32_t length) {
  return length == 0 || length >= kPassageStepTokens ? 1 : kPassageStepTokens / length;
}

// How many of them a model has blocks for; at least 1.
[[nodiscard]] std::uint32_t passages_at_once(const LoadedModel& model, std::uint32_t length);

// A greedy sequence of `tokens` in `num_blocks` blocks of each group, out of part `index` of `num_parts` equal parts of
// its blocks. Where a part is smaller, its blocks are reused in rotation: a block's earlier positions have then left
// the group's window.
[[nodiscard]] SequenceSpec make_spec(const LoadedModel& model, SequenceId id, std::span<const TokenId> tokens,
                                     std::uint32_t num_blocks, std::uint32_t index = 0, std::uint32_t num_parts = 1);

// Error: invalid_argument for an id outside the vocabulary, with its index.
[[nodiscard]] Status check_ids(const ModelInfo& info, std::span<const TokenId> tokens);

// Computes a few passages of equal length side by side. Uses the model's KV blocks from 0 on: no other caller may use
// them at the same time. The logits of a passage do not depend on the others, nor on the number of tokens per call.
class PassageLogits {
 public:
  // Both must outlive it.
  PassageLogits(const LoadedModel& model, Team& team) : model_(model), executor_(model, team) {}

  // Starts over with these passages, all of one length >= 1, their ids within the vocabulary (asserted). Error:
  // invalid_argument if they do not fit the context or the blocks.
  [[nodiscard]] Status open(std::span<const std::vector<TokenId>> passages);
  // Computes `count` more tokens (>= 1, no more than are left) of every passage, without logits.
  void skip(std::uint32_t count);
  // Computes `count` more tokens of every passage (>= 1, at most max_advance(), no more than are left), with logits.
  void advance(std::uint32_t count);
  // Limited by the memory that the logits of all passages take, and by the blocks of layers with a window.
  std::uint32_t max_advance() const;
  // The logits of the last advance(): [tokens, vocabulary] of one passage. Valid until the next call that is not const.
  std::span<const float> logits(std::size_t passage) const { return result_.items[passage].logits; }

 private:
  void step(std::uint32_t count, Output output);

  const LoadedModel& model_;
  Executor executor_;
  std::vector<SequenceId> open_;
  std::uint32_t num_computed_ = 0;  // of every passage
  std::uint32_t most_ = 0;          // tokens of one passage in a step
  SequenceId last_id_ = 0;
  StepBatch batch_;
  StepResult result_;
};

}  // namespace troupe::engine
