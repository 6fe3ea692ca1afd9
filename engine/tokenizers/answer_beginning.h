// A text that an answer has to begin with, behind its reasoning: that of a call which the request asks for.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/ids.h"
#include "engine/sampling/sampler.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

// The text of these ids, control tokens included.
[[nodiscard]] std::string raw_text(const Tokenizer& tokenizer, std::span<const TokenId> ids);

// The ids of a text that stands in the middle of another: without the space that SentencePiece vocabularies put before
// a text. Control tokens in it become their ids.
[[nodiscard]] std::vector<TokenId> encode_inside(const Tokenizer& tokenizer, std::string_view text);

// Of one sequence. Immutable: what comes next follows from the answer so far alone, so that a resumed sequence gets the
// same tokens.
class AnswerBeginning {
 public:
  // prompt: where it ends with the opening marker (and white space), the answer begins within reasoning, and the text
  // comes behind the closing marker. A model that would open its reasoning by itself does not come to it.
  AnswerBeginning(const Tokenizer& tokenizer, const ForcedBeginning& beginning, std::span<const TokenId> prompt);

  // The token that has to follow this answer; nothing: any. O(1), within reasoning O(answer).
  [[nodiscard]] std::optional<TokenId> next(std::span<const TokenId> answer) const;

 private:
  std::vector<TokenId> ids_;
  std::vector<TokenId> close_;  // of the reasoning in which the answer begins; empty: in none
};

}  // namespace troupe::engine
