// The vocabulary of RWKV World ("rwkv"): tokens are byte strings, the longest that fits is taken.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "config/printable.h"
#include "engine/tokenizers/tokenizer_base.h"

namespace troupe::engine {
namespace {

// The bytes of a token's spelling; nothing if it is not a valid one.
std::optional<std::string> unescape(std::string_view text) {
  const auto hex_digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    switch (text[i]) {
      case 't':
        bytes += '\t';
        break;
      case 'n':
        bytes += '\n';
        break;
      case 'r':
        bytes += '\r';
        break;
      case '\\':
      case '\'':
      case '"':
        bytes += text[i];
        break;
      case 'x': {
        if (text.size() - i < 3) return std::nullopt;
        const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        bytes += static_cast<char>(high * 16 + low);
        i += 2;
        break;
      }
      default:
        return std::nullopt;
    }
  }
  return bytes;
}

// Encodes as RWKV's reference tokenizer does: from the left, always the longest token that the rest of the text begins
// with. The file spells a token as Python prints bytes: \t, \n, \r, \\, \', \" and \xNN stand for one byte each. A byte
// that begins no token becomes the unknown token, or is dropped if there is none; the published vocabulary has all 256.
class RwkvTokenizer final : public BaseTokenizer {
 public:
  // pieces: bytes of the tokens, by id; empty for those that text does not become.
  RwkvTokenizer(const ModelFile& file, Vocabulary vocabulary, Rules rules, const std::vector<std::string>& pieces)
      : BaseTokenizer(file, std::move(vocabulary), rules) {
    std::vector<LongestMatch::Text> tokens;
    tokens.reserve(static_cast<std::size_t>(this->vocabulary().end_id()));
    for (TokenId id = 0; id < this->vocabulary().end_id(); ++id)
      tokens.emplace_back(pieces[static_cast<std::size_t>(id)], id);
    tokens_ = LongestMatch(std::move(tokens));
    set_pieces([&](TokenId id, std::string_view) { return pieces[static_cast<std::size_t>(id)]; });
  }

  std::string_view name() const override { return "rwkv"; }

 protected:
  void encode_text(std::string_view text, std::vector<TokenId>& ids, Interrupt& interrupt) const override {
    while (!text.empty()) {
      interrupt.poll();
      const auto match = tokens_.find(text);
      if (match)
        ids.push_back(match->id);
      else if (unknown())
        ids.push_back(*unknown());
      text.remove_prefix(match ? match->length : 1);
    }
  }

 private:
  LongestMatch tokens_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_rwkv_world(const ModelFile& file) {
  Result<Vocabulary> vocabulary = Vocabulary::load(file);
  if (!vocabulary) return vocabulary.error();
  std::vector<std::string> pieces(vocabulary->size());
  for (TokenId id = 0; id < vocabulary->end_id(); ++id) {
    const TokenKind kind = vocabulary->kind(id);
    // Text must not become the end-of-text token or padding of the vocabulary.
    if (kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::unused) continue;
    std::optional<std::string> bytes = unescape(vocabulary->text(id));
    if (!bytes)
      return bad_vocabulary(file, fmt::format("token {} (\"{}\") has an escape that stands for no byte", id,
                                              Printable(vocabulary->text(id))));
    pieces[static_cast<std::size_t>(id)] = std::move(*bytes);
  }
  const auto rules = BaseTokenizer::read_rules(file, {});
  if (!rules) return rules.error();
  return {std::make_shared<const RwkvTokenizer>(file, std::move(*vocabulary), *rules, pieces)};
}

}  // namespace troupe::engine
