// The text of one answer: ids in, text out, ended by stop strings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/serving/stop_matcher.h"
#include "cache/ids.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::actors {

// Its state follows from the ids alone, so an answer is rebuilt exactly by giving the same ids again.
// One per sequence; not thread-safe.
class Answer {
 public:
  // tokenizer: null for a model without a vocabulary: the text stays empty then.
  Answer(std::shared_ptr<const engine::Tokenizer> tokenizer, std::vector<std::string> stop_strings);

  struct Piece {
    std::string text;                 // whole UTF-8 characters that may be sent
    std::optional<std::string> stop;  // the stop string that ended the answer
  };
  [[nodiscard]] Piece push(TokenId id);
  // The text held back so far, when the answer ends for another reason. A character that never became
  // whole is U+FFFD, and may still complete a stop string.
  [[nodiscard]] Piece finish();

  std::uint64_t text_bytes() const { return text_bytes_; }  // given out so far

 private:
  Piece pass(const std::string& text);

  std::optional<engine::Detokenizer> detokenizer_;
  std::vector<std::string> stop_strings_;
  StopMatcher stops_;
  std::uint64_t text_bytes_ = 0;
};

}  // namespace troupe::actors
