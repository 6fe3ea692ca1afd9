// Makes text from outside (a client, a server, a model file, a flag) safe for a terminal, a log or a line of a message.
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

// UTF-8 of bounded length without control sequences for a terminal and without characters that make text look like
// other text: control characters (C0, DEL, C1), marks and overrides of writing direction, zero-width spaces, line and
// paragraph separators, and bytes that are not UTF-8 are escaped as "\n", "\x1b", "\u202e" or "\xff". All other
// characters are unchanged. Idempotent: printable text is not changed.
class Printable {
 public:
  // At most `max_bytes`; longer text is cut, and ends with "…" if that fits.
  explicit Printable(std::string_view text, std::size_t max_bytes = kMaxNameBytes);

  const std::string& text() const { return text_; }
  operator std::string_view() const { return text_; }  // for fmt

  friend bool operator==(const Printable& a, std::string_view b) { return a.text_ == b; }
  friend std::string operator+(std::string before, const Printable& text) { return std::move(before) + text.text_; }
  friend std::ostream& operator<<(std::ostream& out, const Printable& text) { return out << text.text_; }

 private:
  std::string text_;
};

// What is wrong with the name of a model, for a message; empty: nothing.
[[nodiscard]] std::string problem_of_model_name(std::string_view name);

// Escapes as \uXXXX every character within the JSON text's strings that Printable would escape and JSON allows: the
// result parses to the same values and has no control characters for a terminal. `json` is valid UTF-8.
// O(json.size()).
[[nodiscard]] std::string printable_json(std::string_view json);

// A model's text, for a terminal: line ends, tabs and joiners are unchanged, but control characters and overrides of
// writing direction are escaped as by Printable. Text may come in pieces that end inside a character.
class TerminalText {
 public:
  // For a whole text.
  [[nodiscard]] static std::string of(std::string_view text);
  // Returns the text to show now: what was kept of earlier pieces, and `piece` without an incomplete last character.
  [[nodiscard]] std::string show(std::string_view piece);
  // After the last piece: returns the text that was kept.
  [[nodiscard]] std::string end();

 private:
  std::string kept_;  // an incomplete character
};

}  // namespace troupe
