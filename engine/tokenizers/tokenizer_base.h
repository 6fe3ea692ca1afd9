// Base of the tokenizers: the vocabulary, special tokens in a text, BOS and EOS, pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizers/special_tokens.h"
#include "engine/tokenizers/tokenizer.h"
#include "engine/tokenizers/vocabulary.h"

namespace troupe::engine {

class BaseTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const final;
  std::string piece(TokenId id) const final;
  std::string raw_piece(TokenId id) const final;

  std::uint32_t size() const final { return vocabulary_.size(); }
  TokenKind kind(TokenId id) const final { return vocabulary_.kind(id); }
  std::optional<TokenId> bos() const final { return vocabulary_.bos(); }
  std::optional<TokenId> eos() const final { return vocabulary_.eos(); }
  std::optional<TokenId> unknown() const final { return vocabulary_.unknown(); }
  bool adds_bos() const final { return rules_.add_bos; }
  bool adds_space_prefix() const final { return rules_.add_space_prefix; }
  bool is_end_of_generation(TokenId id) const final { return vocabulary_.is_end_of_generation(id); }

 protected:
  // Tokens added around the text; each flag from the metadata, else the tokenizer's default.
  struct Rules {
    bool add_bos = false;
    bool add_eos = false;
    bool add_space_prefix = false;
  };
  static Rules read_rules(const ModelFile& file, Rules defaults);

  // A derived constructor calls set_pieces() with the bytes of every token.
  BaseTokenizer(const ModelFile& file, Vocabulary vocabulary, Rules rules);
  void set_pieces(const std::vector<std::string>& pieces);

  // Appends the ids of text without special tokens. `begins_text`: the text is at the beginning or right after a
  // special token. Every loop over the text polls `interrupt`.
  virtual void encode_text(std::string_view text, bool begins_text, std::vector<TokenId>& ids,
                           Interrupt& interrupt) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  Rules rules_;
  SpecialTokens specials_;
  std::vector<bool> eats_space_;            // by id: white space after this special token is dropped
  std::string piece_bytes_;                 // all pieces, one after another
  std::vector<std::uint32_t> piece_begin_;  // [size + 1]
};

}  // namespace troupe::engine
