// The byte-level BPE type of vocabulary ("gpt2"): words, each merged from its bytes by rank.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "config/printable.h"
#include "config/utf8.h"
#include "engine/formats/metadata.h"
#include "engine/tokenizers/pre_tokenizer.h"
#include "engine/tokenizers/tokenizer_base.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine {
namespace {

// GPT-2 spells every byte as a printable character: printable Latin-1 as itself, the others, in
// ascending order, as U+0100 and on.
struct ByteSpelling {
  std::array<char32_t, 256> character;
  std::array<int, 512> byte;  // of a character; -1: none

  ByteSpelling() {
    byte.fill(-1);
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[static_cast<std::size_t>(b)] = printable ? static_cast<char32_t>(b) : next++;
      byte[character[static_cast<std::size_t>(b)]] = b;
    }
  }
};
const ByteSpelling& spelling() {
  static const ByteSpelling table;
  return table;
}

std::string spell(std::string_view bytes) {
  std::string spelled;
  for (const char c : bytes) append_utf8(spelled, spelling().character[static_cast<std::uint8_t>(c)]);
  return spelled;
}

// The bytes of a token's text. A character that spells no byte is unchanged.
std::string unspell(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Char next = next_utf8(text);
    const bool spelled = next.status == Utf8Status::valid && next.code_point < spelling().byte.size() &&
                         spelling().byte[next.code_point] >= 0;
    if (spelled)
      bytes += static_cast<char>(spelling().byte[next.code_point]);
    else
      bytes += text.substr(0, next.length);
    text.remove_prefix(next.length);
  }
  return bytes;
}

struct Merge {
  std::uint32_t rank;  // index in the merge list
  TokenId merged;
};
using Merges = std::unordered_map<std::uint64_t, Merge>;  // by pair_key(left, right)
using ByteTokenIds = std::array<TokenId, 256>;            // -1: there is none

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Merges words, one after another, reusing its memory.
class WordMerger {
 public:
  WordMerger(const Merges& merges, const ByteTokenIds& byte_tokens, Interrupt& interrupt)
      : merges_(merges), byte_tokens_(byte_tokens), interrupt_(interrupt) {}

  void run(std::string_view word, std::vector<TokenId>& ids) {
    symbols_.clear();
    for (std::size_t i = 0; i < word.size(); ++i) {
      interrupt_.poll();
      const auto at = static_cast<std::int32_t>(i);
      symbols_.push_back({byte_tokens_[static_cast<std::uint8_t>(word[i])], at - 1, at + 1});
    }
    symbols_.back().next = -1;
    for (std::size_t i = 1; i < symbols_.size(); ++i) {
      interrupt_.poll();
      propose(static_cast<std::int32_t>(i) - 1);
    }
    while (!queue_.empty()) {
      interrupt_.poll();
      std::pop_heap(queue_.begin(), queue_.end());
      const Candidate candidate = queue_.back();
      queue_.pop_back();
      merge(candidate);
    }
    for (std::int32_t i = 0; i >= 0; i = symbol(i).next)
      if (symbol(i).id >= 0) ids.push_back(symbol(i).id);
  }

 private:
  struct Symbol {
    TokenId id;  // -1: a byte without a token; kMerged
    std::int32_t previous, next;
  };
  static constexpr TokenId kMerged = -2;  // merged into its left neighbour
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;
    TokenId left_id, right_id, merged;
    bool operator<(const Candidate& other) const {  // the heap's top is the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  Symbol& symbol(std::int32_t i) { return symbols_[static_cast<std::size_t>(i)]; }

  // Queues the merge of a symbol and the next one, if it is in the merge list.
  void propose(std::int32_t left) {
    const std::int32_t right = symbol(left).next;
    if (right < 0 || symbol(left).id < 0 || symbol(right).id < 0) return;
    const auto found = merges_.find(pair_key(symbol(left).id, symbol(right).id));
    if (found == merges_.end()) return;
    queue_.push_back({found->second.rank, left, symbol(left).id, symbol(right).id, found->second.merged});
    std::push_heap(queue_.begin(), queue_.end());
  }

  // Does the merge, unless either symbol has changed since it was queued.
  void merge(const Candidate& candidate) {
    Symbol& left = symbol(candidate.left);
    if (left.id != candidate.left_id || left.next < 0) return;
    Symbol& right = symbol(left.next);
    if (right.id != candidate.right_id) return;
    left.id = candidate.merged;
    right.id = kMerged;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = candidate.left;
    propose(candidate.left);
    if (left.previous >= 0) propose(left.previous);
  }

  const Merges& merges_;
  const ByteTokenIds& byte_tokens_;
  Interrupt& interrupt_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;
};

Result<Merges> read_merges(const ModelFile& file, const Vocabulary& vocabulary) {
  const auto bad = [&](const std::string& what) { return bad_vocabulary(file, what); };
  Metadata keys(file, "tokenizer.ggml");
  const auto* const list = keys.strings("merges");
  if (keys.failed()) return keys.error();
  if (list == nullptr) return bad("tokenizer.ggml.merges is missing, and a vocabulary of model \"gpt2\" needs it");
  Merges merges;
  merges.reserve(list->size());
  for (std::size_t rank = 0; rank < list->size(); ++rank) {
    const std::string& line = (*list)[rank];
    const auto quoted = [&] { return fmt::format("merge {} (\"{}\")", rank, Printable(line)); };
    // The first character may itself be a space in vocabularies that do not spell it.
    const std::size_t space = line.find(' ', 1);
    if (space == std::string::npos || space + 1 == line.size()) return bad(quoted() + " is not two tokens");
    const std::string_view left_text = std::string_view(line).substr(0, space);
    const std::string_view right_text = std::string_view(line).substr(space + 1);
    const auto left = vocabulary.find(left_text);
    const auto right = vocabulary.find(right_text);
    const auto merged = vocabulary.find(std::string(left_text) + std::string(right_text));
    if (!left || !right || !merged)
      return bad(fmt::format("{} refers to a token that is not in the vocabulary of {}", quoted(), vocabulary.size()));
    // Text must not become a token that is not text.
    if (!vocabulary.is_text(*merged)) continue;
    merges.try_emplace(pair_key(*left, *right), Merge{static_cast<std::uint32_t>(rank), *merged});
  }
  return merges;
}

// The name of the pre-tokenizer; empty: the file does not say it. Microsoft's BitNet b1.58 2B-4T is published without
// the field; it is recognised by its vocabulary, which is Llama 3's.
Result<std::string> find_pre_tokenizer(const ModelFile& file, const Vocabulary& vocabulary) {
  Metadata keys(file, "tokenizer.ggml");
  std::string pre = keys.string("pre");
  if (keys.failed()) return keys.error();
  const bool llama3 = vocabulary.bos() && vocabulary.text(*vocabulary.bos()) == "<|begin_of_text|>";
  if (pre.empty() && llama3) return std::string("llama-bpe");
  return pre;
}

// Encodes as GPT-2 does (Radford et al. 2019; BPE: Sennrich, Haddow and Birch, ACL 2016): the text is cut into words by
// the pre-tokenizer; each starts as its bytes, and the pair of neighbours that the merge list has first is merged (the
// leftmost among equals) until none is in the list. The vocabulary spells bytes as printable characters; a byte without
// a token is dropped. Bytes that are not UTF-8 are separate words.
class BytePairTokenizer final : public BaseTokenizer {
 public:
  // guessed: how words are cut is a guess, as the file does not say it.
  BytePairTokenizer(const ModelFile& file, Vocabulary vocabulary, Rules rules, Merges merges, TextSplitter splitter,
                    bool guessed)
      : BaseTokenizer(file, std::move(vocabulary), rules), merges_(std::move(merges)), splitter_(std::move(splitter)) {
    if (guessed)
      add_note(
          "the file does not say how its texts are cut into words (tokenizer.ggml.pre): the rules of \"default\" are "
          "taken, which may give other tokens than the model was trained on; convert the model again");
    for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
      const char c = static_cast<char>(byte);
      byte_tokens_[byte] = this->vocabulary().find_text(spell(std::string_view(&c, 1))).value_or(-1);
    }
    set_pieces([this](TokenId id, std::string_view text) {
      return kind(id) == TokenKind::user_defined ? std::string(text) : unspell(text);
    });
  }

  std::string_view name() const override { return "gpt2"; }

 protected:
  void encode_text(std::string_view text, std::vector<TokenId>& ids, Interrupt& interrupt) const override {
    // Valid UTF-8 goes through the pre-tokenizer; invalid bytes between are separate words.
    std::vector<std::string_view> words;
    for (std::size_t begin = 0; begin < text.size();) {
      const bool valid = next_utf8(text.substr(begin)).status == Utf8Status::valid;
      std::size_t end = begin;
      while (end < text.size()) {
        interrupt.poll();
        const Utf8Char next = next_utf8(text.substr(end));
        if ((next.status == Utf8Status::valid) != valid) break;
        end += next.length;
      }
      const std::string_view run = text.substr(begin, end - begin);
      if (valid)
        splitter_.split(run, words, interrupt);
      else
        words.push_back(run);
      begin = end;
    }
    WordMerger merger(merges_, byte_tokens_, interrupt);
    for (const std::string_view word : words) {
      const auto whole = splitter_.takes_whole_words() ? vocabulary().find_text(spell(word)) : std::nullopt;
      if (whole)
        ids.push_back(*whole);
      else
        merger.run(word, ids);
    }
  }

 private:
  Merges merges_;
  TextSplitter splitter_;
  ByteTokenIds byte_tokens_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_byte_pair(const ModelFile& file) {
  Result<Vocabulary> vocabulary = Vocabulary::load(file);
  if (!vocabulary) return vocabulary.error();
  const auto pre = find_pre_tokenizer(file, *vocabulary);
  if (!pre) return pre.error();
  Result<TextSplitter> splitter = TextSplitter::create(pre->empty() ? "default" : *pre);
  if (!splitter) return Error{splitter.error().code, fmt::format("{}: {}", file.path(), splitter.error().message)};
  Result<Merges> merges = read_merges(file, *vocabulary);
  if (!merges) return merges.error();
  const auto rules = BaseTokenizer::read_rules(file, {.add_bos = splitter->adds_bos()});
  if (!rules) return rules.error();
  return {std::make_shared<const BytePairTokenizer>(file, std::move(*vocabulary), *rules, std::move(*merges),
                                                    std::move(*splitter), pre->empty())};
}

}  // namespace troupe::engine
