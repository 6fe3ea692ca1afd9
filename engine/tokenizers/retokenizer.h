// A growing text of one vocabulary in the tokens of another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/ids.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

// The ids of a text that continues another one: without BOS, and without the space that SentencePiece vocabularies put
// before a text. O(n log n) in text.size().
[[nodiscard]] std::vector<TokenId> encode_continuation(const Tokenizer& tokenizer, std::string_view text);

// Not thread-safe. Takes the text's bytes and 8 bytes for each token.
class Retokenizer {
 public:
  // Both must outlive it.
  Retokenizer(const Tokenizer& from, const Tokenizer& to) : from_(from), to_(to) {}

  // Appends tokens of `from`. As the last word may go on, its tokens may become others: returns how many of tokens()
  // stayed. A control token becomes the one with the same text, or nothing; at the beginning there is the BOS of `to`,
  // if that puts one before a text, instead of that of `from`. O(n log n) in the length of what is appended.
  std::uint32_t append(std::span<const TokenId> ids);

  [[nodiscard]] const std::vector<TokenId>& tokens() const { return tokens_; }  // of `to`

 private:
  static constexpr std::size_t kMaxRewritten = 16;     // tokens
  static constexpr std::size_t kRewrittenInAWord = 8;  // where no word begins among those

  std::uint32_t encode_rest();
  [[nodiscard]] std::size_t first_rewritten() const;
  void append_control(TokenId id);

  const Tokenizer& from_;
  const Tokenizer& to_;
  std::string text_;             // since the last control token
  std::size_t num_encoded_ = 0;  // bytes of text_ that are in tokens_
  std::vector<TokenId> tokens_;
  std::vector<std::uint32_t> ends_;  // in text_, of the tokens from fixed_ on
  std::size_t fixed_ = 0;            // tokens that stay: up to the last control token
  bool begins_text_ = true;          // at the beginning, and after a control token
  std::uint32_t num_appended_ = 0;
};

}  // namespace troupe::engine
