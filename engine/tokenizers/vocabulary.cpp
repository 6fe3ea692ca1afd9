#include "engine/tokenizers/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/assert.h"
#include "config/printable.h"
#include "engine/formats/metadata.h"

namespace troupe::engine {
namespace {

// Tokens whose text says what they are, whatever type the file gives them: converters that take the type from a field
// of tokenizer.json list many of them as normal. llama.cpp (src/llama-vocab.cpp, August 2026) goes by these texts, too.

// They end an answer.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|calls|>",
                                          "<|flush|>",
                                          "<end_of_turn>",
                                          "<|eom_id|>",
                                          "<|endoftext|>",
                                          "<|end_of_text|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "</s>",
                                          "<eos>",
                                          "<|eot|>",
                                          "<|eom|>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<end_of_utterance>",
                                          "<|tool_call_end|>",
                                          "<|ifm|im_end|>",
                                          "<|plamo:eos|>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};
// Of fill-in-the-middle. Those of the second list stand between files, so an answer ends there, too.
constexpr std::string_view kFillTexts[] = {"<|fim_prefix|>",
                                           "<fim-prefix>",
                                           "<fim_prefix>",
                                           "<｜fim▁begin｜>",
                                           "<PRE>",
                                           "▁<PRE>",
                                           "<|code_prefix|>",
                                           "<|prefix|>",
                                           "<|fim_suffix|>",
                                           "<fim-suffix>",
                                           "<fim_suffix>",
                                           "<｜fim▁hole｜>",
                                           "<SUF>",
                                           "▁<SUF>",
                                           "<|code_suffix|>",
                                           "<|suffix|>",
                                           "<|fim_middle|>",
                                           "<fim-middle>",
                                           "<fim_middle>",
                                           "<｜fim▁end｜>",
                                           "<MID>",
                                           "▁<MID>",
                                           "<|code_middle|>",
                                           "<|middle|>",
                                           "<|plamo:fim_prefix|>",
                                           "<|plamo:fim_suffix|>",
                                           "<|plamo:fim_middle|>"};
constexpr std::string_view kFileEndTexts[] = {"<|fim_pad|>", "<fim-pad>",  "<fim_pad>",    "<PAD>",
                                              "[PAD]",       "<REPO>",     "<|fim_repo|>", "<|repo_name|>",
                                              "<fim-repo>",  "<reponame>", "<|file_sep|>", "<|plamo:file_separator|>"};

constexpr std::int64_t kAbsentId = 0xFFFFFFFF;  // some converters write this for "there is none"
constexpr std::size_t kMaxNamedInNote = 4;

// "<|...|>", as control tokens of many vocabularies are spelled.
bool looks_like_control(std::string_view text) {
  return text.size() > 4 && text.starts_with("<|") && text.ends_with("|>") &&
         text.find_first_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

Error bad_vocabulary(const ModelFile& file, const std::string& what) {
  return {ErrorCode::bad_model,
          fmt::format("{}: {}; the file's vocabulary is damaged, convert it again", file.path(), what)};
}

int byte_of_text(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Result<Vocabulary> Vocabulary::load(const ModelFile& file) {
  Vocabulary vocabulary;
  Metadata keys(file, "tokenizer.ggml");
  if (Status status = vocabulary.read_arrays(file, keys); !status) return status.error();
  if (Status status = vocabulary.read_special_ids(file, keys); !status) return status.error();
  vocabulary.decide_roles(keys.string("model"));
  if (keys.failed()) return keys.error();
  if (Status status = vocabulary.check_lengths(file); !status) return status.error();
  return vocabulary;
}

Status Vocabulary::read_arrays(const ModelFile& file, Metadata& keys) {
  const auto* const texts = keys.strings("tokens");
  if (keys.failed()) return keys.error();
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
  const auto types = keys.integers("token_type");
  if (keys.failed()) return keys.error();
  has_types_ = types.has_value();
  if (types) {
    if (types->size() != texts_.size()) return wrong_length("tokenizer.ggml.token_type", types->size());
    for (std::size_t i = 0; i < types->size(); ++i) {
      const std::int64_t type = (*types)[i];
      if (type < 0 || type > 6)
        return bad_vocabulary(file, fmt::format("token {} has type {}, which is none of 0 to 6", i, type));
      // 1 is normal, then as in the enumeration; some converters write 0 ("undefined") for normal tokens.
      kinds_[i] = type == 0 ? TokenKind::normal : static_cast<TokenKind>(type - 1);
    }
  }
  const auto scores = keys.floats("scores");
  if (keys.failed()) return keys.error();
  if (scores) {
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

// Special ids: one, or where a list has a meaning several.
Status Vocabulary::read_special_ids(const ModelFile& file, Metadata& keys) {
  const std::string model = keys.string("model");
  const bool bert = model == "bert";
  if (model == "llama" && size() > 2) {
    // SentencePiece files may omit the ids that its trainer always assigns.
    unknown_ = 0;
    bos_ = 1;
    eos_ = 2;
  } else if (model == "rwkv" && kind(0) == TokenKind::control) {
    eos_ = 0;  // the separator of texts in training
  } else if (bert) {
    unknown_ = find("[UNK]");
    bos_ = find("[CLS]");
    eos_ = find("[SEP]");
  }
  is_end_.assign(texts_.size(), false);
  struct Special {
    const char* key;
    std::optional<TokenId>* id;  // null: of no further meaning
    bool ends = false;           // answers
    bool is_list = false;
  };
  std::optional<TokenId> padding, mask;
  std::vector<Special> specials = {{"bos_token_id", &bos_},
                                   {"eos_token_id", &eos_, true, true},
                                   {"eos_token_ids", nullptr, true, true},  // Ollama's
                                   {"unknown_token_id", &unknown_},
                                   {"eot_token_id", nullptr, true, true},
                                   {"eom_token_id", nullptr, true, true},
                                   {"padding_token_id", &padding},
                                   {"mask_token_id", &mask}};
  // BERT's tokens for the beginning and end of a text have other keys (one with this spelling).
  if (bert) specials.insert(specials.end(), {{"cls_token_id", &bos_}, {"seperator_token_id", &eos_}});
  for (const Special& special : specials) {
    std::vector<std::int64_t> values;
    if (special.is_list) {
      values = keys.integers(special.key).value_or(std::vector<std::int64_t>());
    } else if (const auto value = keys.integer(special.key)) {
      values = {*value};
    }
    if (keys.failed()) return keys.error();
    if (!values.empty() && special.id) special.id->reset();
    for (const std::int64_t value : values) {
      if (value == kAbsentId || value == -1) continue;
      if (value < 0 || static_cast<std::uint64_t>(value) >= size())
        return bad_vocabulary(
            file, fmt::format("tokenizer.ggml.{} is {}, but there are {} tokens", special.key, value, size()));
      const auto id = static_cast<TokenId>(value);
      if (special.ends) is_end_[index(id)] = true;
      if (special.id && !*special.id) *special.id = id;  // of several the first
    }
  }
  if (eos_) is_end_[index(*eos_)] = true;
  if (has_types_) return Ok{};
  // Without types the ids are all that says which tokens are no text.
  for (const auto& id : {bos_, eos_, padding, mask})
    if (id) kinds_[index(*id)] = TokenKind::control;
  for (TokenId id = 0; id < end_id(); ++id)
    if (is_end_[index(id)]) kinds_[index(id)] = TokenKind::control;
  if (unknown_) kinds_[index(*unknown_)] = TokenKind::unknown;
  return Ok{};
}

void Vocabulary::decide_roles(const std::string& model) {
  std::vector<TokenId> made_control, made_byte;
  bool bytes_are_text = true;
  const auto make_control = [&](TokenId id) {
    TokenKind& kind = kinds_[index(id)];
    // Phi-3 lists "</s>" as user-defined, which would let any prompt contain it: that is common, and not worth a note.
    if (kind == TokenKind::normal) made_control.push_back(id);
    if (kind != TokenKind::unknown) kind = TokenKind::control;
  };
  for (const std::string_view text : kFillTexts)
    if (const auto id = find(text)) make_control(*id);
  // Vocabularies with their own end of a turn have the tag of HTML as text.
  const bool s_is_text = find("<|tool_response>") || find("<|plamo:eos|>");
  // Of these formats one message ends with <|end|>, and the answer, of several messages, with one of the others.
  const bool end_is_inner =
      (find("<|return|>") && (find("<|call|>") || find("<|calls|>"))) || (find("<|flush|>") && find("<|calls|>"));
  const auto ends_answer = [&](std::string_view text) {
    const auto id = find(text);
    if (!id || (text == "</s>" && s_is_text && !is_end_[index(*id)])) return;
    if (!(text == "<|end|>" && end_is_inner)) is_end_[index(*id)] = true;
    make_control(*id);
  };
  for (const std::string_view text : kEndTexts) ends_answer(text);
  for (const std::string_view text : kFileEndTexts) ends_answer(text);
  if (!has_types_)
    for (TokenId id = 0; id < end_id(); ++id)
      if (kind(id) == TokenKind::normal && looks_like_control(text(id))) make_control(id);
  if (model == "llama") {
    std::vector<bool> has_byte(256);
    for (TokenId id = 0; id < end_id(); ++id)
      if (const int byte = byte_of_text(text(id)); byte >= 0 && kind(id) == TokenKind::byte)
        has_byte[static_cast<std::size_t>(byte)] = true;
    for (TokenId id = 0; id < end_id(); ++id) {
      const int byte = byte_of_text(text(id));
      if (byte < 0 || kind(id) == TokenKind::byte || has_byte[static_cast<std::size_t>(byte)]) continue;
      bytes_are_text &= kind(id) == TokenKind::normal;
      kinds_[index(id)] = TokenKind::byte;
      has_byte[static_cast<std::size_t>(byte)] = true;
      made_byte.push_back(id);
    }
  }
  const auto note = [&](const std::vector<TokenId>& ids, const char* listed, const char* as) {
    if (ids.empty()) return;
    std::string named;
    for (std::size_t i = 0; i < std::min(ids.size(), kMaxNamedInNote); ++i)
      named += fmt::format("{}{} '{}'", i == 0 ? "" : ", ", ids[i], Printable(text(ids[i]), 40).text());
    if (ids.size() > kMaxNamedInNote) named += fmt::format(" and {} more", ids.size() - kMaxNamedInNote);
    notes_.push_back(fmt::format("{} {} listed as {} {} taken as {} by the spelling: {}", ids.size(),
                                 ids.size() == 1 ? "token" : "tokens", listed, ids.size() == 1 ? "is" : "are", as,
                                 named));
  };
  if (!has_types_)
    notes_.push_back(
        "the file lists no types of tokens (tokenizer.ggml.token_type): they follow from ids and spelling");
  note(made_control, "text", "control tokens");
  note(made_byte, bytes_are_text ? "text" : "no bytes", "bytes");
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
