#include "engine/tokenizers/sentencepiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizers/unicode.h"

namespace troupe::engine {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

std::string escape_spaces(std::string_view text, bool add_prefix) {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (add_prefix) escaped += kSpaceMark;
  for (const char c : text) {
    if (c == ' ') {
      escaped += kSpaceMark;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string unescape_spaces(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size();) {
    if (text.substr(i, kSpaceMark.size()) == kSpaceMark) {
      plain += ' ';
      i += kSpaceMark.size();
    } else {
      plain += text[i++];
    }
  }
  return plain;
}

// The byte that "<0xNN>" stands for, or -1.
int parse_byte_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

// Merges one text. Symbols are a linked list over the text; a candidate merge in the queue is out of
// date if either symbol has changed since, which its length tells.
class SentencePieceTokenizer::Merger {
 public:
  Merger(const SentencePieceTokenizer& tokenizer, std::string_view text, Interrupt& interrupt)
      : tokenizer_(tokenizer), text_(text), interrupt_(interrupt) {}

  // Calls use(symbol) for each of the final symbols, in order.
  template <class Use>
  void run(Use use) {
    split();
    for (std::int32_t right = 1; right < static_cast<std::int32_t>(symbols_.size()); ++right) {
      interrupt_.poll();
      propose(right - 1, right);
    }
    while (!queue_.empty()) {
      interrupt_.poll();
      const Merge merge = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[static_cast<std::size_t>(merge.left)];
      if (left.length == 0 || left.next < 0) continue;
      Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
      if (left.length + right.length != merge.length) continue;
      left.length = merge.length;
      right.length = 0;
      left.next = right.next;
      if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = merge.left;
      if (left.previous >= 0) propose(left.previous, merge.left);
      if (left.next >= 0) propose(merge.left, left.next);
    }
    for (std::int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
      interrupt_.poll();
      const Symbol& symbol = symbols_[static_cast<std::size_t>(i)];
      use(text_.substr(symbol.begin, symbol.length));
    }
  }

 private:
  struct Symbol {
    std::size_t begin;
    std::uint32_t length;  // 0: merged into its left neighbour
    std::int32_t previous, next;
  };
  struct Merge {
    float score;
    std::int32_t left;
    std::uint32_t length;                       // of the merged symbol
    bool operator<(const Merge& other) const {  // the queue's top is the largest
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  void split() {
    for (std::size_t begin = 0; begin < text_.size();) {
      interrupt_.poll();
      const Utf8Char next = next_utf8(text_.substr(begin));
      const std::uint32_t length = next.status == Utf8Status::valid ? next.length : 1;
      const auto i = static_cast<std::int32_t>(symbols_.size());
      symbols_.push_back({begin, length, i - 1, i + 1});
      begin += length;
    }
    if (!symbols_.empty()) symbols_.back().next = -1;
  }

  void propose(std::int32_t left, std::int32_t right) {
    const Symbol& first = symbols_[static_cast<std::size_t>(left)];
    const std::uint32_t length = first.length + symbols_[static_cast<std::size_t>(right)].length;
    if (length > tokenizer_.longest_text_) return;
    const auto id = tokenizer_.vocabulary().find(text_.substr(first.begin, length));
    if (id && tokenizer_.vocabulary().is_text(*id)) queue_.push({tokenizer_.vocabulary().score(*id), left, length});
  }

  const SentencePieceTokenizer& tokenizer_;
  std::string_view text_;
  Interrupt& interrupt_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Merge> queue_;
};

Result<SentencePieceTokenizer::ByteTokens> SentencePieceTokenizer::read_byte_tokens(const ModelFile& file,
                                                                                    const Vocabulary& vocabulary) {
  ByteTokens byte_tokens;
  byte_tokens.fill(-1);
  for (std::uint32_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (vocabulary.kind(id) != TokenKind::byte) continue;
    const int byte = parse_byte_token(vocabulary.text(id));
    if (byte < 0) {
      return Error{ErrorCode::bad_model, fmt::format("{}: token {} is of type byte but is not spelled <0xNN>; the "
                                                     "file's vocabulary is damaged, convert it again",
                                                     file.path(), i)};
    }
    byte_tokens[static_cast<std::size_t>(byte)] = id;
  }
  return byte_tokens;
}

Result<std::shared_ptr<const Tokenizer>> SentencePieceTokenizer::create(const ModelFile& file) {
  Result<Vocabulary> vocabulary = Vocabulary::load(file);
  if (!vocabulary) return vocabulary.error();
  if (!vocabulary->has_scores()) {
    return Error{ErrorCode::bad_model, file.path() +
                                           ": tokenizer.ggml.scores is missing, and a vocabulary of model "
                                           "\"llama\" merges by scores; convert the file again"};
  }
  Result<ByteTokens> byte_tokens = read_byte_tokens(file, *vocabulary);
  if (!byte_tokens) return byte_tokens.error();
  return std::shared_ptr<const Tokenizer>(new SentencePieceTokenizer(file, std::move(*vocabulary), *byte_tokens));
}

SentencePieceTokenizer::SentencePieceTokenizer(const ModelFile& file, Vocabulary vocabulary,
                                               const ByteTokens& byte_tokens)
    : BaseTokenizer(file, std::move(vocabulary),
                    read_rules(file, {.add_bos = true, .add_eos = false, .add_space_prefix = true})),
      byte_tokens_(byte_tokens) {
  std::vector<std::string> pieces(size());
  for (std::uint32_t i = 0; i < size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view text = this->vocabulary().text(id);
    switch (kind(id)) {
      case TokenKind::control:
      case TokenKind::unknown:
        break;  // no text
      case TokenKind::byte:
        pieces[i] = static_cast<char>(parse_byte_token(text));
        break;
      case TokenKind::user_defined:
        pieces[i] = text;
        break;
      case TokenKind::normal:
      case TokenKind::unused:
        pieces[i] = unescape_spaces(text);
        break;
    }
    if (this->vocabulary().is_text(id)) longest_text_ = std::max(longest_text_, text.size());
  }
  set_pieces(pieces);
}

void SentencePieceTokenizer::encode_text(std::string_view text, bool begins_text, std::vector<TokenId>& ids,
                                         Interrupt& interrupt) const {
  const std::string escaped = escape_spaces(text, begins_text && adds_space_prefix());
  Merger(*this, escaped, interrupt).run([&](std::string_view symbol) { append_symbol(symbol, ids); });
}

void SentencePieceTokenizer::append_symbol(std::string_view symbol, std::vector<TokenId>& ids) const {
  if (const auto id = vocabulary().find(symbol); id && vocabulary().is_text(*id)) {
    ids.push_back(*id);
    return;
  }
  const auto byte_token = [&](char c) { return byte_tokens_[static_cast<std::uint8_t>(c)]; };
  if (std::all_of(symbol.begin(), symbol.end(), [&](char c) { return byte_token(c) >= 0; })) {
    for (const char c : symbol) ids.push_back(byte_token(c));
  } else if (unknown()) {
    ids.push_back(*unknown());
  }
}

}  // namespace troupe::engine
