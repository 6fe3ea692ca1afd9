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
    return tokens_->tell(told_, answer.size(), tokens_left, [&] { return behind(answer, tokens_left); });
  }

  // What was read of the answer is read again.
  void truncate(std::size_t) override {
    states_.resize(1);
    told_ = {};
  }

 private:
  // Reasoning ends where the rest is needed for the shortest answer.
  NextTokens in_reasoning(std::span<const TokenId> answer, std::size_t tokens_left) const {
    std::size_t written = std::min(close_.size() - 1, answer.size());
    while (written > 0 && !std::ranges::equal(answer.last(written), std::span(close_).first(written))) --written;
    if (tokens_left > close_.size() - written + gap_.size() + least_tokens_) return {};
    return {.kind = NextTokens::Kind::forced, .forced = close_[written]};
  }

  NextTokens behind(std::span<const TokenId> answer, std::size_t tokens_left) {
    if (states_.size() > answer.size() + 1) states_.resize(answer.size() + 1);
    while (states_.size() <= answer.size()) {
      tokens_->limit_work();  // of each token, so that a long answer can be read from its begin
      states_.push_back(tokens_->after(states_.back(), answer[states_.size() - 1]));
    }
    tokens_->limit_work();
    return tokens_->next(states_.back(), mask_, tokens_left);
  }

  std::shared_ptr<GrammarTokens> tokens_;
  std::size_t least_tokens_;
  TokenMask mask_;
  std::vector<StateId> states_;  // after each token of the answer behind the reasoning, the first before any
  std::vector<TokenId> close_;   // of the reasoning in which the answer begins; empty: in none
  std::vector<TokenId> gap_;     // behind it
  ToldTokens told_;
};

std::unique_ptr<AnswerReader> AnswerGrammar::read(std::span<const TokenId> prompt,
                                                  const ReasoningMarkers& markers) const {
  return std::make_unique<Reader>(tokens_, least_tokens_, prompt, markers);
}

}  // namespace troupe::engine::constraints
