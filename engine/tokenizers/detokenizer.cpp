#include <utility>

#include "engine/tokenizers/tokenizer.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

std::string Detokenizer::push(TokenId id) {
  held_ += tokenizer_->piece(id);
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
