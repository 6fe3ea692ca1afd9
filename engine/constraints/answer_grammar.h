// A grammar as the rule of an answer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "engine/constraints/grammar_tokens.h"
#include "engine/sampling/answer_rule.h"

namespace troupe::engine::constraints {

// What it forces is a part of its meaning: where all tokens that may follow are beginnings of one, and the text of that
// one is the only one that can follow, that token comes, whatever the model finds likely.
class AnswerGrammar final : public AnswerRule {
 public:
  // least_tokens: of the shortest text.
  AnswerGrammar(std::shared_ptr<GrammarTokens> tokens, std::size_t least_tokens)
      : tokens_(std::move(tokens)), least_tokens_(least_tokens) {}

  std::unique_ptr<AnswerReader> read(std::span<const TokenId> prompt, const ReasoningMarkers& markers) const override;

 private:
  class Reader;

  const std::shared_ptr<GrammarTokens> tokens_;
  const std::size_t least_tokens_;
};

}  // namespace troupe::engine::constraints
