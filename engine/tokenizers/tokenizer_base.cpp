#include "engine/tokenizers/tokenizer_base.h"

#include <algorithm>
#include <utility>

#include "config/assert.h"
#include "engine/formats/metadata.h"

namespace troupe::engine {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// White space after Phi-3's special tokens is dropped, except after these three. GGUF has no field for it, so the
// model's name decides, as in llama.cpp.
bool is_phi3(const ModelFile& file) {
  std::string lower = Metadata(file, "general").string("name");
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower.find("phi3") != std::string::npos || lower.find("phi-3") != std::string::npos;
}
bool phi3_eats_space(std::string_view text) { return text != "<unk>" && text != "<s>" && text != "<|endoftext|>"; }

}  // namespace

Result<BaseTokenizer::Rules> BaseTokenizer::read_rules(const ModelFile& file, Rules defaults) {
  Metadata keys(file, "tokenizer.ggml");
  const Rules rules{keys.boolean("add_bos_token", defaults.add_bos), keys.boolean("add_eos_token", defaults.add_eos),
                    keys.boolean("add_space_prefix", defaults.add_space_prefix)};
  if (keys.failed()) return keys.error();
  return rules;
}

BaseTokenizer::BaseTokenizer(const ModelFile& file, Vocabulary vocabulary, Rules rules)
    : vocabulary_(std::move(vocabulary)), notes_(vocabulary_.notes()), rules_(rules), is_phi3_(is_phi3(file)) {
  rules_.add_bos = rules.add_bos && vocabulary_.bos();
  rules_.add_eos = rules.add_eos && vocabulary_.eos();
  std::vector<LongestMatch::Text> texts;
  for (TokenId id = 0; id < vocabulary_.end_id(); ++id)
    if (vocabulary_.is_special(id)) texts.emplace_back(vocabulary_.text(id), id);
  specials_ = LongestMatch(texts);
  // If several special tokens have one text, the kind of the first decides.
  std::erase_if(texts, [&](const LongestMatch::Text& each) {
    const auto first = specials_.find(each.first);
    return !first || first->id != each.second || kind(each.second) != TokenKind::user_defined;
  });
  user_defined_ = LongestMatch(std::move(texts));
}

void BaseTokenizer::set_pieces(const std::function<std::string(TokenId id, std::string_view text)>& bytes_of) {
  for (TokenId id = 0; id < vocabulary_.end_id(); ++id) {
    piece_begin_.push_back(static_cast<std::uint32_t>(piece_bytes_.size()));
    if (kind(id) != TokenKind::control && kind(id) != TokenKind::unknown)
      piece_bytes_ += bytes_of(id, vocabulary_.text(id));
  }
  piece_begin_.push_back(static_cast<std::uint32_t>(piece_bytes_.size()));
}

template <class FindSpecial>
void BaseTokenizer::encode_around_specials(std::string_view text, const FindSpecial& find, std::vector<TokenId>& ids,
                                           Interrupt& interrupt) const {
  std::size_t begin = 0;  // of what is not encoded yet
  while (begin < text.size()) {
    std::optional<LongestMatch::Match> special;
    std::size_t end = begin;  // of the text before the special token
    while (end < text.size()) {
      interrupt.poll();
      special = find(end);
      if (special) break;
      ++end;
    }
    if (end > begin) encode_text(text.substr(begin, end - begin), ids, interrupt);
    if (!special) break;
    ids.push_back(special->id);
    begin = end + special->length;
    if (is_phi3_ && phi3_eats_space(vocabulary_.text(special->id)))
      while (begin < text.size() && is_ascii_space(text[begin])) ++begin;
  }
}

std::vector<TokenId> BaseTokenizer::encode(std::string_view text, EncodeOptions options) const {
  Interrupt interrupt(options.interrupt);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  const LongestMatch& specials = options.parse_special ? specials_ : user_defined_;
  const auto first = options.parse_special ? specials.find(text) : std::nullopt;
  const bool begins_with_bos = first && first->id == vocabulary_.bos();
  if (options.add_special && rules_.add_bos && !begins_with_bos) ids.push_back(*vocabulary_.bos());
  encode_around_specials(
      text, [&](std::size_t position) { return specials.find(text.substr(position)); }, ids, interrupt);
  if (options.add_special && rules_.add_eos && !options.continues) ids.push_back(*vocabulary_.eos());
  return ids;
}

std::vector<TokenId> BaseTokenizer::encode(std::span<const PromptSegment> segments, EncodeOptions options) const {
  Interrupt interrupt(options.interrupt);
  std::string text;
  std::vector<std::size_t> input_begins, input_ends;  // of the segments from input, ascending
  for (const PromptSegment& segment : segments) {
    if (segment.from_input && !segment.text.empty()) {
      input_begins.push_back(text.size());
      input_ends.push_back(text.size() + segment.text.size());
    }
    text += segment.text;
  }
  std::size_t next = 0;  // the first input that ends after the position
  const auto find = [&](std::size_t position) -> std::optional<LongestMatch::Match> {
    while (next < input_ends.size() && input_ends[next] <= position) ++next;
    const std::string_view rest = std::string_view(text).substr(position);
    // User-defined tokens are no control tokens: they are found anywhere, as in any text.
    const auto anywhere = user_defined_.find(rest);
    const std::size_t room =
        next == input_ends.size() ? rest.size() : std::max(input_begins[next], position) - position;
    const auto of_template = specials_.find(rest.substr(0, room));
    return of_template && (!anywhere || of_template->length >= anywhere->length) ? of_template : anywhere;
  };
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  encode_around_specials(text, find, ids, interrupt);
  if (options.add_special && rules_.add_bos && (ids.empty() || ids.front() != *vocabulary_.bos()))
    ids.insert(ids.begin(), *vocabulary_.bos());
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
