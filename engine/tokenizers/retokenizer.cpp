#include "engine/tokenizers/retokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::engine {
namespace {

constexpr EncodeOptions kPlain{.add_special = false};

bool begins_word(char c) { return c == ' ' || c == '\n'; }

}  // namespace

std::vector<TokenId> encode_continuation(const Tokenizer& tokenizer, std::string_view text) {
  if (text.empty() || !tokenizer.adds_space_prefix()) return tokenizer.encode(text, kPlain);
  if (text.size() > 1 && text.front() == ' ') return tokenizer.encode(text.substr(1), kPlain);
  // Behind a line break, which no token shares with what follows; then that is cut off.
  const std::string behind_break = '\n' + std::string(text);
  std::vector<TokenId> ids = tokenizer.encode(behind_break, kPlain);
  std::size_t bytes = 0;
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    const std::string piece = tokenizer.piece(*id);
    if (bytes + piece.size() > 2) break;
    bytes += piece.size();
    if (piece.ends_with('\n')) return {std::next(id), ids.end()};
  }
  return tokenizer.encode(text, kPlain);
}

// The last token that begins a word, so that the tokens before it do not depend on what follows.
std::size_t Retokenizer::first_rewritten() const {
  const std::size_t count = std::min(ends_.size(), kMaxRewritten);
  for (std::size_t back = 1; back <= count; ++back) {
    const std::size_t i = ends_.size() - back;
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    if (begin < text_.size() && begins_word(text_[begin])) return i;
  }
  return ends_.size() - std::min(ends_.size(), kRewrittenInAWord);
}

// Returns how many tokens stayed.
std::uint32_t Retokenizer::encode_rest() {
  if (num_encoded_ == text_.size()) return static_cast<std::uint32_t>(tokens_.size());
  const std::size_t first = first_rewritten();
  const std::size_t begin = first == 0 ? 0 : ends_[first - 1];
  const std::string_view rest = std::string_view(text_).substr(begin);
  const std::vector<TokenId> ids = first > 0 ? encode_continuation(to_, rest) : to_.encode(rest, kPlain);
  // At the beginning of a text a vocabulary may put a space before it, which text_ has not.
  std::string written;
  for (const TokenId id : ids) written += to_.piece(id);
  const std::size_t extra = first == 0 && written.size() == rest.size() + 1 ? 1 : 0;
  const auto old_begin = tokens_.begin() + static_cast<std::ptrdiff_t>(fixed_ + first);
  const auto same = static_cast<std::size_t>(
      std::distance(old_begin, std::mismatch(old_begin, tokens_.end(), ids.begin(), ids.end()).first));
  tokens_.erase(old_begin, tokens_.end());
  ends_.resize(first);
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  num_encoded_ = text_.size();
  const auto num_same = static_cast<std::uint32_t>(fixed_ + first + same);
  if (std::string_view(written).substr(extra) != rest) {  // bytes without a token: what follows is a text of its own
    text_.clear();
    ends_.clear();
    num_encoded_ = 0;
    fixed_ = tokens_.size();
    return num_same;
  }
  std::size_t end = begin;
  for (const TokenId id : ids) {
    end += to_.piece(id).size();
    ends_.push_back(static_cast<std::uint32_t>(end - extra));
  }
  return num_same;
}

void Retokenizer::append_control(TokenId id) {
  const bool begins = num_appended_ == 1 && from_.bos() == id;
  if (!begins) {
    const std::vector<TokenId> ids = to_.encode(from_.raw_piece(id), {.add_special = false, .parse_special = true});
    if (ids.size() == 1 && to_.kind(ids[0]) == TokenKind::control) tokens_.push_back(ids[0]);
  }
  text_.clear();
  ends_.clear();
  num_encoded_ = 0;
  fixed_ = tokens_.size();
  begins_text_ = true;
}

std::uint32_t Retokenizer::append(std::span<const TokenId> ids) {
  auto stayed = static_cast<std::uint32_t>(tokens_.size());
  if (num_appended_ == 0 && to_.adds_bos()) {
    tokens_.push_back(*to_.bos());
    fixed_ = 1;
  }
  for (const TokenId id : ids) {
    ++num_appended_;
    std::string piece = from_.piece(id);
    if (piece.empty()) {
      stayed = std::min(stayed, encode_rest());
      append_control(id);
      continue;
    }
    // The space that a vocabulary puts before a text is not of the text.
    if (std::exchange(begins_text_, false) && from_.adds_space_prefix() && piece.front() == ' ') piece.erase(0, 1);
    text_ += piece;
  }
  return std::min(stayed, encode_rest());
}

}  // namespace troupe::engine
