// A grammar as the rule of an answer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "config/result.h"
#include "engine/constraints/grammar/grammar.h"
#include "engine/constraints/grammar_tokens.h"
#include "engine/constraints/mark_tokens.h"
#include "engine/constraints/token_trie.h"
#include "engine/sampling/answer_rule.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

// What it forces is a part of its meaning: where all tokens that may follow are beginnings of one, and the text of that
// one is the only one that can follow, that token comes, whatever the model finds likely.
class AnswerGrammar final : public AnswerRule {
 public:
  // Errors: unsupported (a vocabulary that cannot write every byte), and of a grammar whose beginning takes too much
  // work. O(shortest text). marks: that the grammar writes; the trie has them.
  [[nodiscard]] static Result<std::shared_ptr<const AnswerGrammar>> make(Grammar grammar,
                                                                         std::shared_ptr<const TokenTrie> trie,
                                                                         std::shared_ptr<const Tokenizer> tokenizer,
                                                                         MarkTokens marks = {});
  // Of a machine that others may use, too.
  [[nodiscard]] static Result<std::shared_ptr<const AnswerGrammar>> make(std::shared_ptr<GrammarTokens> tokens);

  // Of the shortest text.
  std::size_t least_tokens() const { return least_tokens_; }
  std::unique_ptr<AnswerReader> read(std::span<const TokenId> prompt, const ReasoningMarkers& markers) const override;

 private:
  class Reader;
  AnswerGrammar() = default;

  std::shared_ptr<GrammarTokens> tokens_;
  std::size_t least_tokens_ = 0;
};

}  // namespace troupe::engine::constraints
