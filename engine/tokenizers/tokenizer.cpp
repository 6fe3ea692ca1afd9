#include "engine/tokenizers/tokenizer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "config/printable.h"
#include "config/utf8.h"
#include "engine/formats/metadata.h"
#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {
namespace {

// The hash of values one after another: each is hashed with the hash of those before it as the seed.
class HashOfValues {
 public:
  void add(std::string_view text) { hash_ = XXH3_64bits_withSeed(text.data(), text.size(), hash_); }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void add(Number number) { hash_ = XXH3_64bits_withSeed(&number, sizeof number, hash_); }
  void add(std::optional<TokenId> id) { add(id.value_or(-1)); }
  [[nodiscard]] std::uint64_t digest() const { return std::max<std::uint64_t>(hash_, 1); }

 private:
  std::uint64_t hash_ = 0;
};

}  // namespace

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
  // One verdict on a file, also where it is only used to tokenize.
  if (const auto templates = find_chat_templates(file); !templates) return templates.error();
  Metadata keys(file, "tokenizer.ggml");
  const std::string model = keys.string("model");
  if (keys.failed()) return keys.error();
  if (model.empty() || model == "no_vocab" || model == "none") {
    if (const auto ends = find_end_ids(file, nullptr, 0); !ends) return ends.error();
    return std::shared_ptr<const Tokenizer>();
  }
  if (model == "llama") return make_sentencepiece(file);
  if (model == "gpt2") return make_byte_pair(file);
  if (model == "rwkv") return make_rwkv_world(file);
  if (model == "bert") return make_wordpiece(file);
  return Error{
      ErrorCode::unsupported,
      fmt::format("{}: tokenizer.ggml.model is \"{}\", and the known ones are llama (SentencePiece type), gpt2 "
                  "(byte-level BPE), rwkv (RWKV World) and bert (WordPiece); use a model with one of these",
                  file.path(), Printable(model))};
}

Result<std::vector<TokenId>> find_end_ids(const ModelFile& file, const Tokenizer* tokenizer, std::uint32_t vocab_size) {
  std::vector<TokenId> ids;
  if (tokenizer) {
    for (std::uint32_t id = 0; id < tokenizer->size(); ++id)
      if (tokenizer->is_end_of_generation(static_cast<TokenId>(id))) ids.push_back(static_cast<TokenId>(id));
    return ids;
  }
  Metadata keys(file, "tokenizer.ggml");
  for (const char* key : {"eos_token_id", "eos_token_ids"})
    for (const std::int64_t id : keys.integers(key).value_or(std::vector<std::int64_t>()))
      if (id >= 0 && id < vocab_size) ids.push_back(static_cast<TokenId>(id));
  if (keys.failed()) return keys.error();
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::uint64_t vocabulary_digest(const ModelFile& file, const Tokenizer& tokenizer) {
  HashOfValues hash;
  hash.add(tokenizer.name());
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.size()); ++id) {
    hash.add(tokenizer.raw_piece(id));
    hash.add(static_cast<std::uint8_t>(tokenizer.kind(id)));
    hash.add(tokenizer.is_end_of_generation(id));
  }
  for (const auto special : {tokenizer.bos(), tokenizer.eos(), tokenizer.unknown()}) hash.add(special);
  hash.add(tokenizer.adds_bos());
  hash.add(tokenizer.adds_space_prefix());
  // What decides how text is cut into tokens, of the kinds of vocabulary that read it. The file was read with it, so
  // that none of these fails.
  Metadata keys(file, "tokenizer.ggml");
  hash.add(keys.boolean("add_eos_token", false));
  if (tokenizer.name() == "gpt2") {
    hash.add(keys.string("pre"));
    if (const auto* const merges = keys.strings("merges"))
      for (const std::string& merge : *merges) hash.add(std::string_view(merge));
  } else if (tokenizer.name() == "llama") {
    for (const double score : keys.floats("scores").value_or(std::vector<double>())) hash.add(score);
  } else if (tokenizer.name() == "bert") {
    for (const char* const key : {"normalizer.lowercase", "normalizer.strip_accents"})
      hash.add(keys.boolean(key, true));
  }
  return hash.digest();
}

std::uint64_t digest_of(std::initializer_list<std::string_view> texts) {
  HashOfValues hash;
  for (const std::string_view text : texts) hash.add(text);
  return hash.digest();
}

Result<std::vector<std::pair<std::string, std::string>>> find_chat_templates(const ModelFile& file) {
  constexpr std::string_view kPrefix = "tokenizer.", kKey = "tokenizer.chat_template";
  Metadata keys(file, "tokenizer");
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kKey)) continue;
    const std::string_view rest = std::string_view(key).substr(kKey.size());
    if (rest.empty() || rest[0] == '.')
      found.emplace_back(rest.substr(rest.empty() ? 0 : 1), keys.string(key.substr(kPrefix.size())));
  }
  if (keys.failed()) return keys.error();
  return found;
}

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, std::vector<TokenId> shown)
    : tokenizer_(std::move(tokenizer)), shown_(std::move(shown)) {}

std::string Detokenizer::push(TokenId id) {
  const bool is_shown = !shown_.empty() && std::binary_search(shown_.begin(), shown_.end(), id);
  held_ += is_shown ? tokenizer_->raw_piece(id) : tokenizer_->piece(id);
  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Char next = next_utf8(rest);
    if (next.status == Utf8Status::incomplete) break;
    text += next.status == Utf8Status::valid ? rest.substr(0, next.length) : kReplacementCharacter;
    rest.remove_prefix(next.length);
  }
  held_.erase(0, held_.size() - rest.size());
  return text;
}

// The bytes held back are always one incomplete character: one maximal subpart.
std::string Detokenizer::flush() {
  if (std::exchange(held_, {}).empty()) return {};
  return std::string(kReplacementCharacter);
}

}  // namespace troupe::engine
