// The vocabulary of RWKV World ("rwkv"): tokens are byte strings, the longest that fits is taken.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizers/longest_match.h"
#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {

// Encodes as RWKV's reference tokenizer does: from the left, always the longest token that the rest of the text begins
// with. The file spells a token as Python prints bytes: \t, \n, \r, \\, \', \" and \xNN stand for one byte each. A byte
// that begins no token becomes the unknown token, or is dropped if there is none; the published vocabulary has all 256.
class RwkvTokenizer final : public BaseTokenizer {
 public:
  // Error: bad_model.
  static Result<std::shared_ptr<const Tokenizer>> create(const ModelFile& file);

  std::string_view name() const override { return "rwkv"; }

 protected:
  void encode_text(std::string_view text, bool begins_text, std::vector<TokenId>& ids,
                   Interrupt& interrupt) const override;

 private:
  RwkvTokenizer(const ModelFile& file, Vocabulary vocabulary, const std::vector<std::string>& pieces,
                LongestMatch tokens);

  LongestMatch tokens_;
};

}  // namespace troupe::engine
