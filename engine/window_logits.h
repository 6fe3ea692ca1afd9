// Raw logits of windows of tokens, several windows at once: what perplexity and the comparison of two models read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

// Tokens of one step, all windows together; more would make the step buffers larger and nothing faster.
inline constexpr std::uint32_t kWindowStepTokens = 512;

// How many windows of `length` tokens fill a step.
[[nodiscard]] constexpr std::uint32_t windows_at_once(std::uint32_t length) {
  return length == 0 || length >= kWindowStepTokens ? 1 : kWindowStepTokens / length;
}

// How many of them a model has blocks for; at least 1.
[[nodiscard]] std::uint32_t windows_at_once(const LoadedModel& model, std::uint32_t length);

// Error: invalid_argument for an id outside the vocabulary, naming its place.
[[nodiscard]] Status check_ids(const ModelInfo& info, std::span<const TokenId> tokens);

// Walks through a few windows of equal length side by side. Takes the model's KV blocks from 0 on: nobody else may use
// them meanwhile. The logits of a window do not depend on the others, nor on how many tokens a call asks for.
class WindowLogits {
 public:
  // Both must outlive it.
  WindowLogits(const LoadedModel& model, Team& team) : model_(model), executor_(model, team) {}

  // Begins anew with these windows, all of one length >= 1, their ids within the vocabulary (asserted). Error:
  // invalid_argument if they do not fit the context or the blocks.
  [[nodiscard]] Status open(std::span<const std::vector<TokenId>> windows);
  // Computes `count` more tokens (>= 1, no more than are left) of every window, without logits.
  void skip(std::uint32_t count);
  // Computes `count` more tokens of every window (>= 1, at most max_advance(), no more than are left), with logits.
  void advance(std::uint32_t count);
  // Limited by the memory that the logits of all windows take, and by the blocks of layers with a window.
  std::uint32_t max_advance() const;
  // Of the last advance(): [tokens, vocabulary] of one window. Valid until the next call that is not const.
  std::span<const float> logits(std::size_t window) const { return result_.items[window].logits; }

 private:
  void step(std::uint32_t count, Output output);

  const LoadedModel& model_;
  Executor executor_;
  std::vector<SequenceId> open_;
  std::uint32_t num_computed_ = 0;  // of every window
  std::uint32_t most_ = 0;          // tokens of one window in a step
  SequenceId last_id_ = 0;
  StepBatch batch_;
  StepResult result_;
};

}  // namespace troupe::engine
