#include "engine/tokenizers/rwkv_world.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "config/printable.h"

namespace troupe::engine {
namespace {

// The bytes that a token's spelling stands for; nothing if it is no valid spelling.
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

}  // namespace

Result<std::shared_ptr<const Tokenizer>> RwkvTokenizer::create(const ModelFile& file) {
  Result<Vocabulary> vocabulary = Vocabulary::load(file);
  if (!vocabulary) return vocabulary.error();
  std::vector<std::string> pieces(vocabulary->size());
  std::vector<std::pair<std::string, TokenId>> tokens;
  for (std::uint32_t i = 0; i < vocabulary->size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = vocabulary->kind(id);
    // Text must not become the end-of-text token or padding of the vocabulary.
    if (kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::unused) continue;
    std::optional<std::string> bytes = unescape(vocabulary->text(id));
    if (!bytes) {
      return Error{ErrorCode::bad_model, fmt::format("{}: token {} (\"{}\") has an escape that stands for no byte; the "
                                                     "file's vocabulary is damaged, convert it again",
                                                     file.path(), i, Printable(vocabulary->text(id)))};
    }
    tokens.emplace_back(*bytes, id);
    pieces[i] = std::move(*bytes);
  }
  return std::shared_ptr<const Tokenizer>(
      new RwkvTokenizer(file, std::move(*vocabulary), pieces, LongestMatch(std::move(tokens))));
}

RwkvTokenizer::RwkvTokenizer(const ModelFile& file, Vocabulary vocabulary, const std::vector<std::string>& pieces,
                             LongestMatch tokens)
    : BaseTokenizer(file, std::move(vocabulary), read_rules(file, {})), tokens_(std::move(tokens)) {
  set_pieces(pieces);
}

void RwkvTokenizer::encode_text(std::string_view text, bool, std::vector<TokenId>& ids, Interrupt& interrupt) const {
  while (!text.empty()) {
    interrupt.poll();
    if (const auto match = tokens_.find(text)) {
      ids.push_back(match->id);
      text.remove_prefix(match->length);
    } else {
      if (unknown()) ids.push_back(*unknown());
      text.remove_prefix(1);
    }
  }
}

}  // namespace troupe::engine
