#include "engine/tokenizers/answer_beginning.h"

#include <algorithm>

#include "engine/tokenizers/reasoning_limit.h"

namespace troupe::engine {

std::string raw_text(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.raw_piece(id);
  return text;
}

std::vector<TokenId> encode_inside(const Tokenizer& tokenizer, std::string_view text) {
  const auto encoded = [&](std::string_view part) {
    return tokenizer.encode(part, {.add_special = false, .parse_special = true});
  };
  std::vector<TokenId> ids = encoded(text);
  if (ids.size() > 1 && !text.starts_with(' ') &&
      tokenizer.raw_piece(ids.front()).find_first_not_of(' ') == std::string::npos)
    ids.erase(ids.begin());
  if (text.empty() || raw_text(tokenizer, ids) == text) return ids;
  // The space became a part of the first word, or a second one. The text's own space may be that which is put before.
  if (text.starts_with(' '))
    if (std::vector<TokenId> rest = encoded(text.substr(1)); raw_text(tokenizer, rest) == text) return rest;
  std::string line = "\n";
  line += text;
  const std::vector<TokenId> behind = encoded(line);
  for (std::size_t i = 1; i <= 2 && i < behind.size(); ++i)
    if (const auto rest = std::span(behind).subspan(i); raw_text(tokenizer, rest) == text)
      return {rest.begin(), rest.end()};
  return ids;
}

AnswerBeginning::AnswerBeginning(const Tokenizer& tokenizer, const ForcedBeginning& beginning,
                                 std::span<const TokenId> prompt) {
  if (!ends_with_opening(tokenizer, beginning.markers, prompt)) {
    ids_ = encode_inside(tokenizer, beginning.text);
    return;
  }
  close_ = encode_inside(tokenizer, beginning.markers.close);
  ids_ = encode_inside(tokenizer, "\n\n" + beginning.text);
}

std::optional<TokenId> AnswerBeginning::next(std::span<const TokenId> answer) const {
  if (!close_.empty()) {
    const auto close = std::search(answer.begin(), answer.end(), close_.begin(), close_.end());
    if (close == answer.end()) return std::nullopt;
    answer = answer.subspan(static_cast<std::size_t>(close - answer.begin()) + close_.size());
  }
  return answer.size() < ids_.size() ? std::optional(ids_[answer.size()]) : std::nullopt;
}

}  // namespace troupe::engine
