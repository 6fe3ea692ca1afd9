// The text of one answer: detokenizes ids, looks for stop strings, and counts calls of tools.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/serving/stop_matcher.h"
#include "cache/ids.h"
#include "engine/chat/tools/tool_call_parser.h"
#include "engine/tokenizers/reasoning_splitter.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::actors {

// Its state depends on the ids alone, so pushing the same ids again rebuilds an answer exactly.
// One per request; not thread-safe.
class AnswerText {
 public:
  // Where stop strings are looked for: behind the reasoning that these markers end. begins_open: the prompt ends within
  // it.
  struct Behind {
    engine::ReasoningMarkers markers;
    bool begins_open = false;
  };

  // tokenizer: null for a model without a vocabulary; the text is then always empty. shown: as Detokenizer's. behind:
  // none: stop strings are looked for in all of the text. min_tokens: none is looked for before more ids were pushed.
  // The calls that an answer may have, of a request with tools; they stand behind the reasoning, too.
  struct Calls {
    const engine::chat::ToolFormat* format = nullptr;  // the model's
    std::shared_ptr<const engine::chat::ToolSet> tools{};
    std::size_t most = engine::chat::kMaxCallsPerAnswer;  // the answer ends behind so many
  };
  AnswerText(std::shared_ptr<const engine::Tokenizer> tokenizer, std::vector<std::string> stop_strings,
             std::vector<TokenId> shown = {}, std::optional<Behind> behind = std::nullopt, std::uint32_t min_tokens = 0,
             std::optional<Calls> calls = std::nullopt);

  struct Piece {
    std::string text;                 // whole UTF-8 characters that may be sent
    std::optional<std::string> stop;  // the stop string that ended the answer
    bool has_all_calls = false;       // the last call that the answer may have is complete
  };
  [[nodiscard]] Piece push(TokenId id);
  // Returns the text held back so far, when the answer ends for another reason than a stop string. An incomplete
  // character becomes U+FFFD, which may still complete a stop string.
  [[nodiscard]] Piece finish();

  std::uint64_t text_bytes() const { return text_bytes_; }  // returned so far
  std::uint32_t num_calls() const { return calls_ ? static_cast<std::uint32_t>(calls_->num_calls()) : 0; }
  std::uint32_t num_call_tokens() const { return num_call_tokens_; }  // ids that are, in whole or in part, of a call

 private:
  Piece pass(const std::string& text);
  Piece search(std::string before, const std::string& text);

  std::optional<engine::Detokenizer> detokenizer_;
  std::vector<std::string> stop_strings_;
  StopMatcher stops_;
  std::optional<engine::ContentFinder> reasoning_;  // until the text is behind the reasoning
  std::uint64_t text_bytes_ = 0;
  std::optional<engine::chat::ToolCallParser> calls_;
  std::size_t most_calls_ = 0;
  std::uint32_t num_call_tokens_ = 0;
  const std::uint32_t min_tokens_;
  std::uint64_t num_pushed_ = 0;
};

}  // namespace troupe::actors
