// The SentencePiece type of vocabulary ("llama"): merges by score, byte tokens for unknown characters.
#pragma once

#include <array>
#include <memory>

#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {

// Encodes as SentencePiece's BPE model does (Kudo and Richardson, EMNLP 2018): the text, with spaces as U+2581, starts
// as single characters; the neighbours that form the best-scoring token are merged (the leftmost among equals) until no
// pair is a token. A character outside of the vocabulary becomes its bytes' tokens <0xNN>, or the unknown token if
// there are none. Bytes that are no UTF-8 count as characters of one byte.
class SentencePieceTokenizer final : public BaseTokenizer {
 public:
  // Error: bad_model.
  static Result<std::shared_ptr<const Tokenizer>> create(const ModelFile& file);

  std::string_view name() const override { return "llama"; }

 protected:
  void encode_text(std::string_view text, bool begins_text, std::vector<TokenId>& ids,
                   Interrupt& interrupt) const override;

 private:
  using ByteTokens = std::array<TokenId, 256>;  // -1: there is none
  SentencePieceTokenizer(const ModelFile& file, Vocabulary vocabulary, const ByteTokens& byte_tokens);
  static Result<ByteTokens> read_byte_tokens(const ModelFile& file, const Vocabulary& vocabulary);

  class Merger;
  void append_symbol(std::string_view symbol, std::vector<TokenId>& ids) const;

  ByteTokens byte_tokens_;
  std::size_t longest_text_ = 0;  // bytes
};

}  // namespace troupe::engine
