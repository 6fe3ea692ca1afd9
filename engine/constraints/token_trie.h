// A vocabulary, arranged so that the tokens that may follow are found quickly. Immutable; shared by all who constrain
// answers of a model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "engine/constraints/mark_tokens.h"
#include "engine/constraints/text_kinds.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

// A bit for each token of a vocabulary.
class TokenMask {
 public:
  explicit TokenMask(std::size_t num_tokens = 0) : num_tokens_(num_tokens), words_((num_tokens + 63) / 64) {}

  bool allows(TokenId id) const {
    const auto at = static_cast<std::size_t>(id);
    return at < num_tokens_ && ((words_[at / 64] >> (at % 64)) & 1) != 0;
  }
  void allow(TokenId id) {
    words_[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
  }
  void clear() { words_.assign(words_.size(), 0); }
  // Both are of one vocabulary.
  void allow_all_of(const TokenMask& other) {
    for (std::size_t at = 0; at < words_.size(); ++at) words_[at] |= other.words_[at];
  }
  // What is in `more` and not in `less`; all are of one vocabulary.
  void allow_difference(const TokenMask& more, const TokenMask& less) {
    for (std::size_t at = 0; at < words_.size(); ++at) words_[at] |= more.words_[at] & ~less.words_[at];
  }
  std::size_t count() const;
  std::size_t size() const { return num_tokens_; }
  std::span<const std::uint64_t> words() const { return words_; }
  bool operator==(const TokenMask&) const = default;

 private:
  std::size_t num_tokens_;
  std::vector<std::uint64_t> words_;
};

class TokenTrie {
 public:
  // A node of a trie in depth-first order.
  struct Node {
    static constexpr TokenId kNoToken = -1;
    std::uint32_t behind;  // the first node that is not below this one
    TokenId token;         // the token that ends here, or kNoToken
    std::uint16_t depth;   // bytes from the root: 1 below it
    std::uint8_t byte;
    std::uint8_t max_characters;  // of the tokens here and below, in a trie of a kind; at most 255
  };

  // The bytes of each token, by id; empty for tokens that are no text. O(bytes log tokens)
  explicit TokenTrie(const std::vector<std::string>& pieces);
  // The pieces of a tokenizer's tokens that are text: all but control, unknown and unused ones,
  // and those that end an answer. marks: control tokens that stand in it by their bytes in a grammar's texts; tokens
  // with the first of these bytes, which no UTF-8 text has, are left out then.
  static TokenTrie of(const Tokenizer& tokenizer, const MarkTokens& marks = {});

  std::size_t num_tokens() const { return num_tokens_; }
  // Tokens of a kind and no lower one; and those of no kind.
  const std::vector<Node>& tokens_of(TextKind kind) const { return of_kind_[static_cast<std::size_t>(kind)]; }
  const std::vector<Node>& other_tokens() const { return others_; }
  // All tokens of a kind or a lower one with at most so many characters (1 to kMaxTextDepth, or kEveryDepth).
  const TokenMask& all_of(TextKind kind, std::uint8_t max_characters) const;
  // Pairs of tokens with the same bytes: the first is in the tries, the second is not.
  const std::vector<std::pair<TokenId, TokenId>>& doubles() const { return doubles_; }
  // Whether every byte of UTF-8 is a token of its own, so that every text can be written.
  bool has_every_byte() const { return has_every_byte_; }
  // The longest token that `text` begins with, and its bytes; kNoToken if there is none.
  [[nodiscard]] std::pair<TokenId, std::size_t> longest_of(std::string_view text) const;
  // Tokens that longest_of(), again and again, writes a text with.
  [[nodiscard]] std::size_t tokens_to_write(std::string_view text) const;
  std::size_t max_token_bytes() const { return max_token_bytes_; }

 private:
  std::size_t num_tokens_ = 0, max_token_bytes_ = 0;
  std::vector<Node> of_kind_[kNumTextKinds];
  std::vector<Node> others_;
  std::vector<std::array<std::uint32_t, 256>>
      roots_;                      // of each trie, the last of others_: the node below the root by its byte
  std::vector<TokenMask> all_of_;  // of each kind: 1 to kMaxTextDepth, then every depth
  std::vector<std::pair<TokenId, TokenId>> doubles_;
  bool has_every_byte_ = false;
};

}  // namespace troupe::engine::constraints
