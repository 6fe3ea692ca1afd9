// Drafts with a model of another vocabulary: by the text of the tokens.
//
// The model is told the text of a sequence in its own tokens; what it says becomes tokens of the target. It draws the
// most likely token whatever the request's parameters: of two vocabularies the same uniform number selects nothing in
// common. As "universal assisted decoding" in Hugging Face's transformers, and llama.cpp's drafts for models that are
// not compatible. Nothing is proposed where the text has become longer, in its tokens, than the model's context; what
// is longer by far is not even converted.
#pragma once

#include <unordered_map>

#include "engine/drafting/model_drafter.h"
#include "engine/tokenizers/retokenizer.h"

namespace troupe::engine {

class TextDrafter final : public Proposer {
 public:
  // All must outlive it. The draft model has attention to the whole context only (compare_vocabularies): its tokens at
  // the end of a text are replaced when a word goes on.
  TextDrafter(const LoadedModel& draft, const LoadedModel& target, Team& team);

  void propose(const std::vector<DraftAsk>& asks, DraftReply& reply) override;
  void close(std::uint64_t request) override;

 private:
  struct Sequence {
    Retokenizer text;
    std::uint32_t num_known = 0;  // tokens of the target
    std::uint32_t num_told = 0;   // of the text's tokens, to drafter_
  };
  static constexpr std::uint32_t kMostPerToken = 2;  // tokens of the target that one of the model may stand for

  Sequence* find(const DraftAsk& ask);
  [[nodiscard]] std::vector<TokenId> to_target(const std::vector<TokenId>& drafted, std::uint32_t most) const;

  const LoadedModel& draft_;
  const Tokenizer& target_;
  ModelDrafter drafter_;
  std::unordered_map<std::uint64_t, Sequence> sequences_;
};

}  // namespace troupe::engine
