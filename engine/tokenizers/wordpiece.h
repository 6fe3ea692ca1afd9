// The WordPiece type of vocabulary ("bert"): words are cut into pieces, longest match first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizers/longest_match.h"
#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {

// Encodes as BERT does (Devlin et al., NAACL 2019; WordPiece: Schuster and Nakajima, ICASSP 2012): control characters
// are dropped, letters become lower-case and lose their accents unless the metadata say otherwise, the text is cut at
// white space, around punctuation and around Chinese characters, and each word is cut from the left into the longest
// tokens. A word that cannot be cut like this, or of more than 100 characters, is one unknown token. The file spells
// the first piece of a word with U+2581 before it. [CLS] and [SEP] are added around the ids. Not byte-exact: decoding
// gives the words back, with single spaces.
class WordPieceTokenizer final : public BaseTokenizer {
 public:
  // Error: bad_model.
  static Result<std::shared_ptr<const Tokenizer>> create(const ModelFile& file);

  std::string_view name() const override { return "bert"; }

 protected:
  void encode_text(std::string_view text, bool begins_text, std::vector<TokenId>& ids,
                   Interrupt& interrupt) const override;

 private:
  WordPieceTokenizer(const ModelFile& file, Vocabulary vocabulary, LongestMatch tokens);
  void append_word(std::u32string_view word, std::vector<TokenId>& ids) const;

  LongestMatch tokens_;
  bool lowercase_;
  bool strip_accents_;
};

}  // namespace troupe::engine
