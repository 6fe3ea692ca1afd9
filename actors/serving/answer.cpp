#include "actors/serving/answer.h"

#include <utility>

namespace troupe::actors {

AnswerText::AnswerText(std::shared_ptr<const engine::Tokenizer> tokenizer, std::vector<std::string> stop_strings,
                       std::vector<TokenId> shown)
    : stop_strings_(stop_strings), stops_(std::move(stop_strings)) {
  if (tokenizer) detokenizer_.emplace(std::move(tokenizer), std::move(shown));
}

AnswerText::Piece AnswerText::push(TokenId id) { return detokenizer_ ? pass(detokenizer_->push(id)) : Piece{}; }

AnswerText::Piece AnswerText::finish() {
  if (!detokenizer_) return {};
  Piece piece = pass(detokenizer_->flush());
  if (!piece.stop) {
    const std::string held = stops_.flush();
    piece.text += held;
    text_bytes_ += held.size();
  }
  return piece;
}

AnswerText::Piece AnswerText::pass(const std::string& text) {
  StopMatcher::Found found = stops_.push(text);
  text_bytes_ += found.text.size();
  Piece piece{std::move(found.text), std::nullopt};
  if (found.stop) piece.stop = stop_strings_[*found.stop];
  return piece;
}

}  // namespace troupe::actors
