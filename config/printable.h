// Text from outside (a client, a server, a model file, a flag), fit for a terminal, a log or a line of a message.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

inline constexpr std::size_t kMaxNameBytes = 64;        // of a name in a message
inline constexpr std::size_t kMaxModelNameBytes = 128;  // of the name that a model is served under
inline constexpr std::size_t kMaxMessageBytes = 8192;   // of a line of a log, or on a terminal

// UTF-8 of bounded length without anything that a terminal obeys or that looks like other text: control characters
// (C0, DEL, C1), marks and overrides of writing direction, spaces without width, line and paragraph separators, and
// bytes that are not UTF-8 are shown as "\n", "\x1b", "\u202e" or "\xff". All other characters stay as they are. What
// is printable already stays equal: making it printable twice does no harm.
class Printable {
 public:
  // At most `max_bytes`; of longer text the beginning, and "…" where that fits.
  explicit Printable(std::string_view text, std::size_t max_bytes = kMaxNameBytes);

  const std::string& text() const { return text_; }
  operator std::string_view() const { return text_; }  // so that fmt formats it

  friend bool operator==(const Printable& a, std::string_view b) { return a.text_ == b; }
  friend std::string operator+(std::string before, const Printable& text) { return std::move(before) + text.text_; }
  friend std::ostream& operator<<(std::ostream& out, const Printable& text) { return out << text.text_; }

 private:
  std::string text_;
};

// The same JSON text with every character within its strings that Printable would show, and JSON allows, as \uXXXX:
// it parses to the same values, and a terminal obeys nothing in it. `json` is valid UTF-8. O(json.size()).
[[nodiscard]] std::string printable_json(std::string_view json);

// What a model writes, for a terminal: characters as they are, with line ends, tabs and joiners, but control characters
// and overrides of writing direction shown as Printable shows them. Text may come in pieces that end anywhere.
class TerminalText {
 public:
  // Of a text that is there as a whole.
  [[nodiscard]] static std::string of(std::string_view text);
  // What is to be shown now: `piece`, after what was kept of those before, without an unfinished character.
  [[nodiscard]] std::string show(std::string_view piece);
  // After the last piece: what was kept.
  [[nodiscard]] std::string end();

 private:
  std::string kept_;  // the beginning of a character
};

}  // namespace troupe
