#include "actors/serving/answer.h"

#include <utility>

namespace troupe::actors {

AnswerText::AnswerText(std::shared_ptr<const engine::Tokenizer> tokenizer, std::vector<std::string> stop_strings,
                       std::vector<TokenId> shown, std::optional<Behind> behind, std::uint32_t min_tokens,
                       std::optional<Calls> calls)
    : stop_strings_(stop_strings), stops_(std::move(stop_strings)), min_tokens_(min_tokens) {
  if (calls) {
    calls_.emplace(*calls->format, std::move(calls->tools));
    most_calls_ = calls->most;
  }
  if (behind && (!stop_strings_.empty() || calls_)) reasoning_.emplace(std::move(behind->markers), behind->begins_open);
  if (tokenizer) detokenizer_.emplace(std::move(tokenizer), std::move(shown));
}

AnswerText::Piece AnswerText::push(TokenId id) {
  ++num_pushed_;
  if (!detokenizer_) return {};
  const bool was_within = calls_ && calls_->is_within_call();
  const std::size_t num_before = num_calls();
  Piece piece = pass(detokenizer_->push(id));
  if (was_within || num_calls() != num_before) ++num_call_tokens_;
  piece.has_all_calls = calls_ && !piece.stop && calls_->num_ended() >= most_calls_;
  return piece;
}

AnswerText::Piece AnswerText::finish() {
  if (!detokenizer_) return {};
  Piece piece = pass(detokenizer_->flush());
  if (reasoning_) {
    engine::ContentFinder::Parts parts = reasoning_->finish();
    reasoning_.reset();
    Piece rest = search(std::move(parts.before), parts.content);
    piece.text += rest.text;
    piece.stop = std::move(rest.stop);
  }
  if (!piece.stop) {
    const std::string held = stops_.flush();
    piece.text += held;
    text_bytes_ += held.size();
    if (calls_) (void)calls_->push(held);
  }
  if (calls_) (void)calls_->finish();
  return piece;
}

AnswerText::Piece AnswerText::pass(const std::string& text) {
  if (!reasoning_) return search({}, text);
  engine::ContentFinder::Parts parts = reasoning_->push(text);
  if (reasoning_->is_content()) reasoning_.reset();
  return search(std::move(parts.before), parts.content);
}

// before: text that is not searched.
AnswerText::Piece AnswerText::search(std::string before, const std::string& text) {
  StopMatcher::Found found = stops_.push(text, num_pushed_ > min_tokens_);
  // What a stop string cuts off is no call.
  if (calls_) (void)calls_->push(found.text);
  Piece piece{std::move(before) + found.text, std::nullopt};
  text_bytes_ += piece.text.size();
  if (found.stop) piece.stop = stop_strings_[*found.stop];
  return piece;
}

}  // namespace troupe::actors
