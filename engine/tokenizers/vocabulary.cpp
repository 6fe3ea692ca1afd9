#include "engine/tokenizers/vocabulary.h"

#include <fmt/format.h>

#include <cmath>

#include "config/assert.h"

namespace troupe::engine {
namespace {

// Texts of end-of-generation tokens of chat models, in addition to the ids in the metadata.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<end_of_turn>",
                                          "<|eom_id|>",
                                          "<|endoftext|>",
                                          "<|end_of_text|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "</s>",
                                          "<|eot|>",
                                          "<|eom|>",
                                          "<turn|>",
                                          "<end_of_utterance>",
                                          "<|tool_call_end|>"};

constexpr std::int64_t kAbsentId = 0xFFFFFFFF;  // some converters write this for "there is none"

// An optional special id; an error if it is outside of the vocabulary.
Status read_id(const ModelFile& file, const std::string& key, std::size_t vocab_size, std::optional<TokenId>& id) {
  const std::optional<std::int64_t> value = file.integer(key);
  if (!value) return Ok{};
  id.reset();
  if (*value == kAbsentId || *value == -1) return Ok{};
  if (*value < 0 || static_cast<std::uint64_t>(*value) >= vocab_size)
    return bad_vocabulary(file, fmt::format("{} is {}, but there are {} tokens", key, *value, vocab_size));
  id = static_cast<TokenId>(*value);
  return Ok{};
}

}  // namespace

Error bad_vocabulary(const ModelFile& file, const std::string& what) {
  return {ErrorCode::bad_model,
          fmt::format("{}: {}; the file's vocabulary is damaged, convert it again", file.path(), what)};
}

Result<Vocabulary> Vocabulary::load(const ModelFile& file) {
  Vocabulary vocabulary;
  if (Status status = vocabulary.read_arrays(file); !status) return status.error();
  if (Status status = vocabulary.read_special_ids(file); !status) return status.error();
  if (Status status = vocabulary.check_lengths(file); !status) return status.error();
  return vocabulary;
}

Status Vocabulary::read_arrays(const ModelFile& file) {
  const auto* const texts = file.strings("tokenizer.ggml.tokens");
  if (texts == nullptr || texts->empty()) return bad_vocabulary(file, "tokenizer.ggml.tokens is missing or empty");
  if (texts->size() > kMaxVocabularySize) {
    return bad_vocabulary(file, fmt::format("tokenizer.ggml.tokens has {} entries, more than the {} allowed",
                                            texts->size(), kMaxVocabularySize));
  }
  const auto wrong_length = [&](const char* key, std::size_t length) {
    return bad_vocabulary(file, fmt::format("{} has {} entries for {} tokens", key, length, texts->size()));
  };
  std::size_t total_bytes = 0;
  for (const std::string& text : *texts) total_bytes += text.size();
  if (total_bytes > kMaxVocabularyBytes) {
    return bad_vocabulary(file, fmt::format("tokenizer.ggml.tokens holds {} bytes of text, more than the {} allowed",
                                            total_bytes, kMaxVocabularyBytes));
  }
  texts_ = *texts;
  kinds_.assign(texts_.size(), TokenKind::normal);
  if (const auto* const types = file.integers("tokenizer.ggml.token_type")) {
    if (types->size() != texts_.size()) return wrong_length("tokenizer.ggml.token_type", types->size());
    for (std::size_t i = 0; i < types->size(); ++i) {
      const std::int64_t type = (*types)[i];
      if (type < 0 || type > 6)
        return bad_vocabulary(file, fmt::format("token {} has type {}, which is none of 0 to 6", i, type));
      // 1 is normal, then as in the enumeration; some converters write 0 ("undefined") for normal tokens.
      kinds_[i] = type == 0 ? TokenKind::normal : static_cast<TokenKind>(type - 1);
    }
  }
  if (const auto* const scores = file.numbers("tokenizer.ggml.scores")) {
    if (scores->size() != texts_.size()) return wrong_length("tokenizer.ggml.scores", scores->size());
    scores_.reserve(scores->size());
    for (const double score : *scores) {
      if (std::isnan(score)) return bad_vocabulary(file, "tokenizer.ggml.scores has an entry that is not a number");
      scores_.push_back(static_cast<float>(score));
    }
  }
  by_text_.reserve(texts_.size());
  for (std::size_t i = 0; i < texts_.size(); ++i) by_text_.emplace(texts_[i], static_cast<TokenId>(i));
  return Ok{};
}

Status Vocabulary::check_lengths(const ModelFile& file) const {
  std::size_t special_bytes = 0;
  for (TokenId id = 0; id < end_id(); ++id) {
    const bool special = is_special(id);
    const std::size_t bytes = text(id).size();
    const std::size_t limit = special ? kMaxSpecialTokenBytes : kMaxTokenBytes;
    if (bytes > limit) {
      return bad_vocabulary(file, fmt::format("token {} has {} bytes, more than the {} allowed{}", id, bytes, limit,
                                              special ? " of a special one" : ""));
    }
    if (special) special_bytes += bytes;
  }
  if (special_bytes > kMaxSpecialTokensBytes) {
    return bad_vocabulary(file, fmt::format("it has special tokens of {} bytes together, more than the {} allowed",
                                            special_bytes, kMaxSpecialTokensBytes));
  }
  return Ok{};
}

Status Vocabulary::read_special_ids(const ModelFile& file) {
  const std::string* const model = file.string("tokenizer.ggml.model");
  const bool bert = model != nullptr && *model == "bert";
  if (model != nullptr && *model == "llama" && size() > 2) {
    // SentencePiece files may omit the ids that its trainer always assigns.
    unknown_ = 0;
    bos_ = 1;
    eos_ = 2;
  } else if (model != nullptr && *model == "rwkv" && kind(0) == TokenKind::control) {
    eos_ = 0;  // the separator of texts in training
  } else if (bert) {
    unknown_ = find("[UNK]");
    bos_ = find("[CLS]");
    eos_ = find("[SEP]");
  }
  std::optional<TokenId> end_of_turn, end_of_message;
  std::vector<std::pair<const char*, std::optional<TokenId>*>> ids = {{"bos_token_id", &bos_},
                                                                      {"eos_token_id", &eos_},
                                                                      {"unknown_token_id", &unknown_},
                                                                      {"eot_token_id", &end_of_turn},
                                                                      {"eom_token_id", &end_of_message}};
  // BERT's tokens for the beginning and end of a text have other keys (one with this spelling).
  if (bert) ids.insert(ids.end(), {{"cls_token_id", &bos_}, {"seperator_token_id", &eos_}});
  for (const auto& [key, id] : ids)
    if (Status status = read_id(file, fmt::format("tokenizer.ggml.{}", key), texts_.size(), *id); !status)
      return status;
  is_end_.assign(texts_.size(), false);
  for (const std::optional<TokenId>& id : {eos_, end_of_turn, end_of_message})
    if (id) is_end_[index(*id)] = true;
  for (const std::string_view text : kEndTexts) {
    const std::optional<TokenId> id = find(text);
    if (!id || kinds_[index(*id)] == TokenKind::normal) continue;
    is_end_[index(*id)] = true;
    // Phi-3 lists "</s>" as user-defined, which would let any prompt contain it.
    kinds_[index(*id)] = TokenKind::control;
  }
  return Ok{};
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  if (found == by_text_.end()) return std::nullopt;
  return found->second;
}

std::optional<TokenId> Vocabulary::find_text(std::string_view text) const {
  const auto id = find(text);
  return id && is_text(*id) ? id : std::nullopt;
}

bool Vocabulary::is_special(TokenId id) const {
  const TokenKind kind = this->kind(id);
  return kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::user_defined;
}

bool Vocabulary::is_text(TokenId id) const {
  const TokenKind kind = this->kind(id);
  return kind == TokenKind::normal || kind == TokenKind::user_defined || kind == TokenKind::unused;
}

std::size_t Vocabulary::index(TokenId id) const {
  TROUPE_ASSERT(id >= 0 && static_cast<std::size_t>(id) < texts_.size());
  return static_cast<std::size_t>(id);
}

}  // namespace troupe::engine
