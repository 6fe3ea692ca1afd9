#include "engine/tokenizers/tokenizer_base.h"

#include <algorithm>
#include <utility>

#include "config/assert.h"

namespace troupe::engine {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Phi-3's special tokens swallow the white space after them, except for these three. GGUF has no field for it, so the
// model's name decides, as in llama.cpp.
bool is_phi3(const ModelFile& file) {
  const std::string* const name = file.string("general.name");
  if (name == nullptr) return false;
  std::string lower = *name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower.find("phi3") != std::string::npos || lower.find("phi-3") != std::string::npos;
}
bool phi3_eats_space(std::string_view text) { return text != "<unk>" && text != "<s>" && text != "<|endoftext|>"; }

}  // namespace

BaseTokenizer::Rules BaseTokenizer::read_rules(const ModelFile& file, Rules defaults) {
  return {file.boolean("tokenizer.ggml.add_bos_token").value_or(defaults.add_bos),
          file.boolean("tokenizer.ggml.add_eos_token").value_or(defaults.add_eos),
          file.boolean("tokenizer.ggml.add_space_prefix").value_or(defaults.add_space_prefix)};
}

BaseTokenizer::BaseTokenizer(const ModelFile& file, Vocabulary vocabulary, Rules rules)
    : vocabulary_(std::move(vocabulary)), rules_(rules), eats_space_(vocabulary_.size()) {
  rules_.add_bos = rules.add_bos && vocabulary_.bos();
  rules_.add_eos = rules.add_eos && vocabulary_.eos();
  const bool phi3 = is_phi3(file);
  for (std::uint32_t i = 0; i < vocabulary_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!vocabulary_.is_special(id) || vocabulary_.text(id).empty()) continue;
    specials_.add(vocabulary_.text(id), id, /*on_request=*/vocabulary_.kind(id) != TokenKind::user_defined);
    eats_space_[i] = phi3 && phi3_eats_space(vocabulary_.text(id));
  }
}

void BaseTokenizer::set_pieces(const std::vector<std::string>& pieces) {
  TROUPE_ASSERT(pieces.size() == vocabulary_.size());
  piece_begin_.clear();
  piece_bytes_.clear();
  for (const std::string& piece : pieces) {
    piece_begin_.push_back(static_cast<std::uint32_t>(piece_bytes_.size()));
    piece_bytes_ += piece;
  }
  piece_begin_.push_back(static_cast<std::uint32_t>(piece_bytes_.size()));
}

std::vector<TokenId> BaseTokenizer::encode(std::string_view text, EncodeOptions options) const {
  Interrupt interrupt(options.interrupt);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  if (options.add_special && rules_.add_bos) ids.push_back(*vocabulary_.bos());
  bool begins_text = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto special = specials_.find(text, begin, options.parse_special, interrupt);
    const std::size_t end = special ? special->begin : text.size();
    if (end > begin) encode_text(text.substr(begin, end - begin), begins_text, ids, interrupt);
    if (!special) break;
    ids.push_back(special->id);
    begins_text = true;
    begin = end + special->length;
    if (eats_space_[static_cast<std::size_t>(special->id)]) {
      while (begin < text.size() && is_ascii_space(text[begin])) ++begin;
    }
  }
  if (options.add_special && rules_.add_eos) ids.push_back(*vocabulary_.eos());
  return ids;
}

std::string BaseTokenizer::piece(TokenId id) const {
  TROUPE_ASSERT(id >= 0 && static_cast<std::uint32_t>(id) < size());
  const std::uint32_t begin = piece_begin_[static_cast<std::size_t>(id)];
  return piece_bytes_.substr(begin, piece_begin_[static_cast<std::size_t>(id) + 1] - begin);
}

std::string BaseTokenizer::raw_piece(TokenId id) const {
  const TokenKind kind = vocabulary_.kind(id);
  if (kind == TokenKind::control || kind == TokenKind::unknown) return std::string(vocabulary_.text(id));
  return piece(id);
}

}  // namespace troupe::engine
