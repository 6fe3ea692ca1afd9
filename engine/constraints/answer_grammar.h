// A grammar as the rule of an answer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "config/result.h"
#include "engine/constraints/grammar/grammar.h"
#include "engine/constraints/token_trie.h"
#include "engine/sampling/answer_rule.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

// Expressions that are derived and states that are made for one mask, or to read one token, some microseconds each.
// More than that and the answer fails, so that no grammar keeps a step from its end. What was made for an earlier mask
// of the request, its other choices included, is not made again. Other requests count nowhere: each reads with a copy
// of what was compiled, so whether a form was compiled before, and what others read with it, changes no answer.
inline constexpr std::size_t kMaxMaskWork = 5'000;

// What it forces is a part of its meaning: where all tokens that may follow are beginnings of one, and the text of that
// one is the only one that can follow, that token comes, whatever the model finds likely.
class AnswerGrammar final : public AnswerRule {
 public:
  // Errors: unsupported (a vocabulary that cannot write every byte), and of a grammar whose beginning takes too much
  // work. O(shortest text)
  [[nodiscard]] static Result<std::shared_ptr<const AnswerGrammar>> make(Grammar grammar,
                                                                         std::shared_ptr<const TokenTrie> trie,
                                                                         std::shared_ptr<const Tokenizer> tokenizer);
  ~AnswerGrammar() override;

  // Of the shortest text.
  std::size_t least_tokens() const { return least_tokens_; }
  // Estimated bytes of memory, which grow while it is read with. Any thread, waits for none.
  std::size_t bytes_used() const;
  std::unique_ptr<AnswerReader> read(std::span<const TokenId> prompt, const ReasoningMarkers& markers) const override;

 private:
  struct Shared;  // the machine, which all readers share, one after another
  class Reader;
  AnswerGrammar() = default;

  std::shared_ptr<Shared> shared_;
  std::size_t least_tokens_ = 0;
};

}  // namespace troupe::engine::constraints
