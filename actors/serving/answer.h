// The text of one answer: detokenizes ids and looks for stop strings.
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

// Its state depends on the ids alone, so pushing the same ids again rebuilds an answer exactly.
// One per request; not thread-safe.
class AnswerText {
 public:
  // tokenizer: null for a model without a vocabulary; the text is then always empty. shown: as Detokenizer's.
  AnswerText(std::shared_ptr<const engine::Tokenizer> tokenizer, std::vector<std::string> stop_strings,
             std::vector<TokenId> shown = {});

  struct Piece {
    std::string text;                 // whole UTF-8 characters that may be sent
    std::optional<std::string> stop;  // the stop string that ended the answer
  };
  [[nodiscard]] Piece push(TokenId id);
  // Returns the text held back so far, when the answer ends for another reason than a stop string. An incomplete
  // character becomes U+FFFD, which may still complete a stop string.
  [[nodiscard]] Piece finish();

  std::uint64_t text_bytes() const { return text_bytes_; }  // returned so far

 private:
  Piece pass(const std::string& text);

  std::optional<engine::Detokenizer> detokenizer_;
  std::vector<std::string> stop_strings_;
  StopMatcher stops_;
  std::uint64_t text_bytes_ = 0;
};

}  // namespace troupe::actors
