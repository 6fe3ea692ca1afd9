#include "engine/tokenizers/answer_beginning.h"

#include <algorithm>

#include "engine/tokenizers/reasoning_limit.h"

namespace troupe::engine {

std::vector<TokenId> encode_inside(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  if (ids.size() > 1 && !text.starts_with(' ') &&
      tokenizer.raw_piece(ids.front()).find_first_not_of(' ') == std::string::npos)
    ids.erase(ids.begin());
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
