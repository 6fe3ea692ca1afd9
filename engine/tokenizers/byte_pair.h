// The byte-level BPE type of vocabulary ("gpt2"): words, each merged from its bytes by rank.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/tokenizers/pre_tokenizer.h"
#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {

// Encodes as GPT-2 does (Radford et al. 2019; BPE: Sennrich, Haddow and Birch, ACL 2016): the text is cut into words by
// the pre-tokenizer; each starts as its bytes, and the pair of neighbours that the merge list has first is merged (the
// leftmost among equals) until none is in the list. The vocabulary spells bytes as printable characters; a byte without
// a token is dropped. Bytes that are no UTF-8 are separate words.
class BytePairTokenizer final : public BaseTokenizer {
 public:
  // Error: bad_model, or unsupported (an unknown pre-tokenizer).
  static Result<std::shared_ptr<const Tokenizer>> create(const ModelFile& file);

  std::string_view name() const override { return "gpt2"; }

 protected:
  void encode_text(std::string_view text, bool begins_text, std::vector<TokenId>& ids,
                   Interrupt& interrupt) const override;

 private:
  struct Merge {
    std::uint32_t rank;  // index in the merge list
    TokenId merged;
  };
  using Merges = std::unordered_map<std::uint64_t, Merge>;  // by pair(left, right)
  static std::uint64_t pair(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  class WordMerger;

  BytePairTokenizer(const ModelFile& file, Vocabulary vocabulary, Merges merges, TextSplitter splitter);
  static Result<Merges> read_merges(const ModelFile& file, const Vocabulary& vocabulary);

  Merges merges_;
  TextSplitter splitter_;
  std::array<TokenId, 256> byte_tokens_;  // -1: there is none
};

}  // namespace troupe::engine
