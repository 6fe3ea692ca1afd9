#include "engine/constraints/answer_grammar.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/tokenizers/answer_beginning.h"
#include "engine/tokenizers/reasoning_limit.h"

namespace troupe::engine::constraints {
class AnswerGrammar::Reader final : public AnswerReader {
 public:
  Reader(std::shared_ptr<GrammarTokens> tokens, std::size_t least_tokens, std::span<const TokenId> prompt,
         const ReasoningMarkers& markers)
      : tokens_(std::move(tokens)),
        least_tokens_(least_tokens),
        mask_(tokens_->num_tokens()),
        states_{tokens_->begin()} {
    if (!ends_with_opening(tokens_->tokenizer(), markers, prompt)) return;
    close_ = encode_inside(tokens_->tokenizer(), markers.close);
    gap_ = encode_inside(tokens_->tokenizer(), "\n\n");
  }

  NextTokens next(std::span<const TokenId> answer, std::size_t tokens_left) override {
    if (!close_.empty()) {
      const auto close = std::search(answer.begin(), answer.end(), close_.begin(), close_.end());
      if (close == answer.end()) return in_reasoning(answer, tokens_left);
      answer = answer.subspan(static_cast<std::size_t>(close - answer.begin()) + close_.size());
      if (answer.size() < gap_.size()) return {.kind = NextTokens::Kind::forced, .forced = gap_[answer.size()]};
      answer = answer.subspan(gap_.size());
    }
    const auto lock = tokens_->lock();
    try {
      return behind(answer, tokens_left);
    } catch (const ConstraintLimit&) {
      return {.kind = NextTokens::Kind::failed};
    }
  }

  // What was read of the answer is read again.
  void truncate(std::size_t) override { states_.resize(1); }

 private:
  // Reasoning ends where the rest is needed for the shortest answer.
  NextTokens in_reasoning(std::span<const TokenId> answer, std::size_t tokens_left) const {
    std::size_t written = std::min(close_.size() - 1, answer.size());
    while (written > 0 && !std::ranges::equal(answer.last(written), std::span(close_).first(written))) --written;
    if (tokens_left > close_.size() - written + gap_.size() + least_tokens_) return {};
    return {.kind = NextTokens::Kind::forced, .forced = close_[written]};
  }

  NextTokens behind(std::span<const TokenId> answer, std::size_t tokens_left) {
    tokens_->limit_work();
    if (states_.size() > answer.size() + 1) states_.resize(answer.size() + 1);
    while (states_.size() <= answer.size())
      states_.push_back(tokens_->after(states_.back(), answer[states_.size() - 1]));
    return tokens_->next(states_.back(), mask_, tokens_left, told_);
  }

  std::shared_ptr<GrammarTokens> tokens_;
  std::size_t least_tokens_;
  TokenMask mask_;
  ToldTokens told_;
  std::vector<StateId> states_;  // after each token of the answer behind the reasoning, the first before any
  std::vector<TokenId> close_;   // of the reasoning in which the answer begins; empty: in none
  std::vector<TokenId> gap_;     // behind it
};

Result<std::shared_ptr<const AnswerGrammar>> AnswerGrammar::make(std::shared_ptr<GrammarTokens> tokens) {
  try {
    std::shared_ptr<AnswerGrammar> made(new AnswerGrammar());
    made->least_tokens_ = tokens->tokens_to_end(tokens->begin());
    made->tokens_ = std::move(tokens);
    return std::shared_ptr<const AnswerGrammar>(std::move(made));
  } catch (const ConstraintLimit& limit) {
    return Error{ErrorCode::unsupported, limit.what()};
  }
}

Result<std::shared_ptr<const AnswerGrammar>> AnswerGrammar::make(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                                                                 std::shared_ptr<const Tokenizer> tokenizer,
                                                                 MarkTokens marks) {
  if (!trie->has_every_byte())
    return Error{ErrorCode::unsupported,
                 "the model's vocabulary has no token for some bytes, so that its answers cannot be held to a form"};
  try {
    return make(
        std::make_shared<GrammarTokens>(std::move(grammar), std::move(trie), std::move(tokenizer), std::move(marks)));
  } catch (const ConstraintLimit& limit) {
    return Error{ErrorCode::unsupported, limit.what()};
  }
}

std::unique_ptr<AnswerReader> AnswerGrammar::read(std::span<const TokenId> prompt,
                                                  const ReasoningMarkers& markers) const {
  return std::make_unique<Reader>(tokens_, least_tokens_, prompt, markers);
}

}  // namespace troupe::engine::constraints
