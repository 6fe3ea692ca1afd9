// The vocabulary of BERT ("bert"): words in pieces, the longest piece first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizers/longest_match.h"
#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {

// Encodes as BERT does (Devlin et al., NAACL 2019; WordPiece: Schuster and Nakajima, ICASSP 2012): control characters
// vanish, letters become small and lose their accents where the metadata say so (by default), the text is cut at white
// space, around punctuation and around Chinese characters, and from each word the longest token is taken from the left
// until nothing is left. A word that cannot be taken apart like this, or of more than 100 characters, is one unknown
// token. The file spells the first piece of a word with U+2581 before it. [CLS] and [SEP] stand around what is encoded.
// Not byte-exact: decoding gives the words back, with single spaces.
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
