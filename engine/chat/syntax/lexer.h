// The tokens of a template: Jinja's, with trim_blocks and lstrip_blocks on, as transformers sets them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/values/value.h"

namespace troupe::engine::chat {

enum class TokenType : std::uint8_t {
  data,  // text outside of tags; not empty
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,  // its value, without quotes and escapes
  integer,
  real,
  op,
  end,
};

struct Token {
  TokenType type;
  Place place;
  std::string text;
  bool is(TokenType wanted, std::string_view content) const { return type == wanted && text == content; }
  bool is_op(std::string_view symbol) const { return is(TokenType::op, symbol); }
  bool is_name(std::string_view name) const { return is(TokenType::name, name); }
};

// Comments are left out; the last token is `end`. Throws TemplateError with the line. O(source).
std::vector<Token> read_tokens(std::string_view source);

}  // namespace troupe::engine::chat
