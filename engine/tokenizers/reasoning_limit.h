// A budget for what a model writes before its answer: once it is used up, the marker that ends the reasoning comes
// next.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/ids.h"
#include "engine/sampling/sampler.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

// Whether a prompt ends with the marker that opens reasoning, and white space.
[[nodiscard]] bool ends_with_opening(const Tokenizer& tokenizer, const ReasoningMarkers& markers,
                                     std::span<const TokenId> prompt);

// Of one sequence. Immutable: what comes next follows from the answer so far alone, so that a resumed sequence gets the
// same tokens.
class ReasoningLimit {
 public:
  // prompt: where it ends with the opening marker (and white space), the answer begins within reasoning.
  ReasoningLimit(std::shared_ptr<const Tokenizer> tokenizer, ReasoningBudget budget, std::span<const TokenId> prompt);

  // The token that has to follow this answer; nothing: any. O(budget) once the budget is used up, else O(1).
  [[nodiscard]] std::optional<TokenId> next(std::span<const TokenId> answer) const;

 private:
  // The first token after the opening marker; nothing: the answer does not begin with reasoning, or not yet.
  std::optional<std::size_t> begin_of(std::span<const TokenId> answer) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ReasoningBudget budget_;
  std::vector<TokenId> close_;
  bool begins_open_ = false;
};

}  // namespace troupe::engine
