// Base of the tokenizers: the vocabulary, special tokens in a text, BOS and EOS, pieces; and the functions that make
// them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizers/longest_match.h"
#include "engine/tokenizers/tokenizer.h"
#include "engine/tokenizers/vocabulary.h"

namespace troupe::engine {

class BaseTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const final;
  std::vector<TokenId> encode(std::span<const PromptSegment> segments, EncodeOptions options) const final;
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
  const std::vector<std::string>& notes() const final { return notes_; }

  // Tokens added around the text; each flag from the metadata, else the tokenizer's default.
  struct Rules {
    bool add_bos = false;
    bool add_eos = false;
    bool add_space_prefix = false;
  };
  // Error: bad_model.
  static Result<Rules> read_rules(const ModelFile& file, Rules defaults);

 protected:
  BaseTokenizer(const ModelFile& file, Vocabulary vocabulary, Rules rules);
  // Called by the constructor of a derived class: bytes_of() gives the piece of each token. Control and unknown tokens
  // have none.
  void set_pieces(const std::function<std::string(TokenId id, std::string_view text)>& bytes_of);

  // Appends the ids of text without special tokens, from the beginning or from a special token to the next one or the
  // end. Every loop over the text polls `interrupt`.
  virtual void encode_text(std::string_view text, std::vector<TokenId>& ids, Interrupt& interrupt) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  void add_note(std::string note) { notes_.push_back(std::move(note)); }

 private:
  // The ids of text without BOS and EOS; find(p) gives the special token that begins at position p of it, if there is
  // one.
  template <class FindSpecial>
  void encode_around_specials(std::string_view text, const FindSpecial& find, std::vector<TokenId>& ids,
                              Interrupt& interrupt) const;

  Vocabulary vocabulary_;
  std::vector<std::string> notes_;
  Rules rules_;
  bool is_phi3_;
  LongestMatch specials_;                   // the texts of special tokens
  LongestMatch user_defined_;               // those that are also found without EncodeOptions::parse_special
  std::string piece_bytes_;                 // all pieces, one after another
  std::vector<std::uint32_t> piece_begin_;  // [size + 1]
};

inline constexpr std::string_view kSpaceMark =
    "\xE2\x96\x81";  // U+2581, a space in texts of SentencePiece and WordPiece

// The tokenizers of the known types of vocabulary: gpt2, rwkv, llama and bert. Error: bad_model, or unsupported (an
// unknown pre-tokenizer).
Result<std::shared_ptr<const Tokenizer>> make_byte_pair(const ModelFile& file);
Result<std::shared_ptr<const Tokenizer>> make_rwkv_world(const ModelFile& file);
Result<std::shared_ptr<const Tokenizer>> make_sentencepiece(const ModelFile& file);
Result<std::shared_ptr<const Tokenizer>> make_wordpiece(const ModelFile& file);

}  // namespace troupe::engine
