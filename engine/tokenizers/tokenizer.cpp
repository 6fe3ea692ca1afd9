#include "engine/tokenizers/tokenizer.h"

#include <string>

#include "config/printable.h"
#include "engine/tokenizers/byte_pair.h"
#include "engine/tokenizers/rwkv_world.h"
#include "engine/tokenizers/sentencepiece.h"
#include "engine/tokenizers/wordpiece.h"

namespace troupe::engine {

std::string Tokenizer::decode(const std::vector<TokenId>& ids, const std::atomic<bool>* interrupt) const {
  Interrupt stop(interrupt);
  std::string text;
  bool first = adds_space_prefix();
  for (const TokenId id : ids) {
    stop.poll();
    const std::string piece = this->piece(id);
    const bool strip = first && !piece.empty() && piece[0] == ' ';
    text.append(piece, strip ? 1 : 0);
    first = first && piece.empty();
  }
  return text;
}

Result<std::shared_ptr<const Tokenizer>> make_tokenizer(const ModelFile& file) {
  const std::string* const model = file.string("tokenizer.ggml.model");
  if (model == nullptr || *model == "no_vocab" || *model == "none") return std::shared_ptr<const Tokenizer>();
  if (*model == "llama") return SentencePieceTokenizer::create(file);
  if (*model == "gpt2") return BytePairTokenizer::create(file);
  if (*model == "rwkv") return RwkvTokenizer::create(file);
  if (*model == "bert") return WordPieceTokenizer::create(file);
  return Error{ErrorCode::unsupported, file.path() + ": tokenizer.ggml.model is \"" + Printable(*model) +
                                           "\", and the known ones are llama (SentencePiece type), gpt2 "
                                           "(byte-level BPE), rwkv (RWKV World) and bert (WordPiece); use a model "
                                           "with one of these"};
}

std::vector<TokenId> find_end_ids(const ModelFile& file, const Tokenizer* tokenizer, std::uint32_t vocab_size) {
  std::vector<TokenId> ids;
  if (tokenizer) {
    for (std::uint32_t id = 0; id < tokenizer->size(); ++id) {
      if (tokenizer->is_end_of_generation(static_cast<TokenId>(id))) ids.push_back(static_cast<TokenId>(id));
    }
  } else if (const auto eos = file.integer("tokenizer.ggml.eos_token_id"); eos && *eos >= 0 && *eos < vocab_size) {
    ids.push_back(static_cast<TokenId>(*eos));
  }
  return ids;
}

}  // namespace troupe::engine
