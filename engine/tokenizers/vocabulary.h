// The tokens of a vocabulary as a model file lists them: texts, kinds, scores, special ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/formats/model_file.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

inline constexpr std::size_t kMaxVocabularySize = std::size_t{1} << 22;
inline constexpr std::size_t kMaxVocabularyBytes = std::size_t{1} << 28;  // of all texts together
inline constexpr std::size_t kMaxTokenBytes = 4096;                       // the longest known has 512
// Limits for special tokens, which are searched for in every prompt: a prompt that repeats the beginning of one costs
// its length each time.
inline constexpr std::size_t kMaxSpecialTokenBytes = 1024;
inline constexpr std::size_t kMaxSpecialTokensBytes = std::size_t{1} << 23;  // together

class Metadata;

// The byte of a token spelled "<0xNN>", or -1.
[[nodiscard]] int byte_of_text(std::string_view text);

[[nodiscard]] Error bad_vocabulary(const ModelFile& file, const std::string& what);

// Checked when loaded: the arrays have one length, kinds are known, special ids are in range.
// Immutable; any thread may read it.
class Vocabulary {
 public:
  // Reads tokenizer.ggml.{tokens, token_type, scores, *_token_id, eos_token_ids}. Error: bad_model.
  //
  // What a token is follows from its type and its spelling together: those that end an answer or fill in the middle are
  // control tokens, and "<0x0A>" of a SentencePiece vocabulary is a byte, also where the file lists them as normal, or
  // has no types.
  static Result<Vocabulary> load(const ModelFile& file);

  Vocabulary(Vocabulary&&) = default;  // no copies: by_text_ points into texts_
  Vocabulary& operator=(Vocabulary&&) = default;

  std::uint32_t size() const { return static_cast<std::uint32_t>(texts_.size()); }
  TokenId end_id() const { return static_cast<TokenId>(size()); }  // ids are 0 to this, exclusive
  // text(): as spelled in the file. These three: id < size (asserted).
  std::string_view text(TokenId id) const { return texts_[index(id)]; }
  TokenKind kind(TokenId id) const { return kinds_[index(id)]; }
  float score(TokenId id) const { return scores_.empty() ? 0.0f : scores_[index(id)]; }
  bool has_scores() const { return !scores_.empty(); }

  // The lowest id with this text.
  std::optional<TokenId> find(std::string_view text) const;
  // The same, but nothing if ordinary text may not become this token.
  std::optional<TokenId> find_text(std::string_view text) const;
  // Whether its text is searched for before a text is cut into words: control, unknown and user-defined tokens.
  bool is_special(TokenId id) const;
  // Whether ordinary text may become this token. Control, unknown and byte tokens are not text, even
  // where their spelling occurs in it.
  bool is_text(TokenId id) const;

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  std::optional<TokenId> unknown() const { return unknown_; }
  bool is_end_of_generation(TokenId id) const { return is_end_[index(id)]; }
  // What was decided otherwise than the file lists it: sentences for the log.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Vocabulary() = default;
  Status read_arrays(const ModelFile& file, Metadata& keys);
  Status check_lengths(const ModelFile& file) const;
  Status read_special_ids(const ModelFile& file, Metadata& keys);
  void decide_roles(const std::string& model);
  std::size_t index(TokenId id) const;

  std::vector<std::string> texts_;
  std::vector<TokenKind> kinds_;
  std::vector<float> scores_;
  std::unordered_map<std::string_view, TokenId> by_text_;
  std::vector<bool> is_end_;
  bool has_types_ = false;
  std::vector<std::string> notes_;
  std::optional<TokenId> bos_, eos_, unknown_;
};

}  // namespace troupe::engine
