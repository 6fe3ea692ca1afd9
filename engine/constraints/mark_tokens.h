// Control tokens in the texts of a grammar.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

// A control token has no bytes in an answer, and its text spelled out is not the token. In a grammar's texts each one
// stands as two bytes that are no UTF-8: 0xFF and its place among the marks. Immutable.
class MarkTokens {
 public:
  static constexpr char kFirstByte = '\xFF';
  static constexpr std::size_t kMost = 200;  // what exceeds them is left out

  MarkTokens() = default;
  // ids: control tokens of the vocabulary; those that end an answer are told apart (ends_answer).
  MarkTokens(const Tokenizer& tokenizer, std::span<const TokenId> ids);

  // Those of them that are among `ids`, with the same bytes.
  [[nodiscard]] MarkTokens among(std::span<const TokenId> ids) const;
  // `text` with the marks in it as their bytes.
  [[nodiscard]] std::string written(std::string_view text) const;
  // Whether `text` is a token that ends an answer, so that a grammar does not write it.
  bool ends_answer(std::string_view text) const;
  // The bytes of a token in a grammar's texts.
  [[nodiscard]] std::string piece(const Tokenizer& tokenizer, TokenId id) const;

  struct Mark {
    TokenId id;
    std::string text, bytes;
  };
  // Long texts first.
  const std::vector<Mark>& marks() const { return marks_; }

 private:
  std::vector<Mark> marks_;
  std::vector<std::string> ends_;  // texts of tokens that end an answer
};

}  // namespace troupe::engine::constraints
