// JSON as it is being written: where a value ends, and texts with their quotes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/chat/values/json.h"

namespace troupe::engine::chat {

// Finds the end of one value, whose first character is not white space. Brackets are counted, and not compared: what is
// no JSON ends, too. Not thread-safe.
class JsonScanner {
 public:
  // How many bytes at the front of `text`, which continues that of earlier calls, belong to the value. A number or a
  // word ends before the first byte that cannot belong to it.
  std::size_t scan(std::string_view text);
  bool is_done() const { return state_ == State::done; }

 private:
  enum class State : std::uint8_t { start, word, text, nested, done };
  State state_ = State::start;
  std::size_t depth_ = 0;
  bool in_text_ = false, escaped_ = false;
};

// Reads a text that may go on. Every function leaves `at` where it was if there is not enough of it, or it is something
// else.
struct JsonCursor {
  enum class Found : std::uint8_t { yes, no, cut };

  std::string_view text;
  std::size_t at = 0;

  void skip_space();
  bool is_cut() const { return at >= text.size(); }
  // White space, then these bytes.
  Found mark(std::string_view bytes);
  // White space, then a text in quotes, whose value it writes.
  Found quoted(std::string& value);
  // White space, then a value, whose bytes it gives.
  Found value(std::string_view& bytes);
};

// The bytes between a JSON text's quotes that stand for `text`.
[[nodiscard]] std::string escaped_json(std::string_view text);
// With quotes.
[[nodiscard]] std::string quoted_json(std::string_view text);

// A value as Python's json.dumps writes it, without escapes for what is not ASCII.
[[nodiscard]] std::string json_text(const Json& value);

// The text that JSON's escapes at the front of `bytes` stand for, up to a quote, an escape that is cut, or the end.
struct Unescaped {
  std::string text;
  std::size_t length = 0;  // of the bytes that were read, without the quote
  bool at_quote = false;
};
[[nodiscard]] Unescaped unescape_json(std::string_view bytes);

}  // namespace troupe::engine::chat
