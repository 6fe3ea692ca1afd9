// The SentencePiece type of vocabulary ("llama"): merges by score, byte tokens for unknown characters.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

#include "config/utf8.h"
#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {
namespace {

std::string escape_spaces(std::string_view text, bool add_prefix) {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (add_prefix) escaped += kSpaceMark;
  for (const char c : text)
    if (c == ' ')
      escaped += kSpaceMark;
    else
      escaped += c;
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

using ByteTokens = std::array<TokenId, 256>;  // -1: there is none

// Merges one text. Symbols are a linked list over the text; a candidate merge in the queue is out of
// date if either symbol has changed since: their lengths no longer add up to its length.
class Merger {
 public:
  // longest_text: bytes of the longest token that text may become.
  Merger(const Vocabulary& vocabulary, std::size_t longest_text, std::string_view text, Interrupt& interrupt)
      : vocabulary_(vocabulary), longest_text_(longest_text), text_(text), interrupt_(interrupt) {}

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
    if (length > longest_text_) return;
    if (const auto id = vocabulary_.find_text(text_.substr(first.begin, length)))
      queue_.push({vocabulary_.score(*id), left, length});
  }

  const Vocabulary& vocabulary_;
  std::size_t longest_text_;
  std::string_view text_;
  Interrupt& interrupt_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Merge> queue_;
};

Result<ByteTokens> read_byte_tokens(const ModelFile& file, const Vocabulary& vocabulary) {
  ByteTokens byte_tokens;
  byte_tokens.fill(-1);
  for (TokenId id = 0; id < vocabulary.end_id(); ++id) {
    if (vocabulary.kind(id) != TokenKind::byte) continue;
    const int byte = byte_of_text(vocabulary.text(id));
    if (byte < 0) return bad_vocabulary(file, fmt::format("token {} is of type byte but is not spelled <0xNN>", id));
    byte_tokens[static_cast<std::size_t>(byte)] = id;
  }
  return byte_tokens;
}

// Encodes as SentencePiece's BPE model does (Kudo and Richardson, EMNLP 2018): the text, with spaces as U+2581, starts
// as single characters; the neighbours that form the best-scoring token are merged (the leftmost among equals) until no
// pair is a token. A character outside of the vocabulary becomes its bytes' tokens <0xNN>, or the unknown token if
// there are none. Bytes that are not UTF-8 count as characters of one byte.
class SentencePieceTokenizer final : public BaseTokenizer {
 public:
  SentencePieceTokenizer(const ModelFile& file, Vocabulary vocabulary, Rules rules, const ByteTokens& byte_tokens)
      : BaseTokenizer(file, std::move(vocabulary), rules), byte_tokens_(byte_tokens) {
    set_pieces([this](TokenId id, std::string_view text) {
      if (kind(id) == TokenKind::byte) return std::string(1, static_cast<char>(byte_of_text(text)));
      longest_text_ = std::max(longest_text_, text.size());
      return kind(id) == TokenKind::user_defined ? std::string(text) : unescape_spaces(text);
    });
  }

  std::string_view name() const override { return "llama"; }

 protected:
  void encode_text(std::string_view text, std::vector<TokenId>& ids, Interrupt& interrupt) const override {
    const std::string escaped = escape_spaces(text, adds_space_prefix());
    Merger(vocabulary(), longest_text_, escaped, interrupt).run([&](std::string_view symbol) {
      append_symbol(symbol, ids);
    });
  }

 private:
  void append_symbol(std::string_view symbol, std::vector<TokenId>& ids) const {
    const auto byte_token = [&](char c) { return byte_tokens_[static_cast<std::uint8_t>(c)]; };
    if (const auto id = vocabulary().find_text(symbol))
      ids.push_back(*id);
    else if (std::all_of(symbol.begin(), symbol.end(), [&](char c) { return byte_token(c) >= 0; }))
      for (const char c : symbol) ids.push_back(byte_token(c));
    else if (unknown())
      ids.push_back(*unknown());
  }

  ByteTokens byte_tokens_;
  std::size_t longest_text_ = 0;  // bytes
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_sentencepiece(const ModelFile& file) {
  Result<Vocabulary> vocabulary = Vocabulary::load(file);
  if (!vocabulary) return vocabulary.error();
  if (!vocabulary->has_scores())
    return Error{ErrorCode::bad_model,
                 fmt::format("{}: tokenizer.ggml.scores is missing, and a vocabulary of model \"llama\" merges by "
                             "scores; convert the file again",
                             file.path())};
  Result<ByteTokens> byte_tokens = read_byte_tokens(file, *vocabulary);
  if (!byte_tokens) return byte_tokens.error();
  const auto rules = BaseTokenizer::read_rules(file, {.add_bos = true, .add_eos = false, .add_space_prefix = true});
  if (!rules) return rules.error();
  return {std::make_shared<const SentencePieceTokenizer>(file, std::move(*vocabulary), *rules, *byte_tokens)};
}

}  // namespace troupe::engine
