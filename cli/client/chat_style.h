// How `troupe chat` looks on a terminal: colours, and dimmed reasoning. Plain logic, but for chat_style().
#pragma once

#include <string>
#include <string_view>

namespace troupe::cli {

// Escape sequences; all empty where nothing is coloured.
struct ChatStyle {
  std::string_view prompt, note, reasoning, end;
  bool is_plain() const { return end.empty(); }
};

// Plain unless shows_colors(fd).
[[nodiscard]] ChatStyle chat_style(int fd);

// Puts the style around the reasoning of one answer, markers included, while its text comes in pieces. Only the
// beginning of an answer that may become its opening marker is held back.
class ReasoningShade {
 public:
  // begins_open: the answer begins within reasoning. A plain style, or an empty marker, changes nothing.
  ReasoningShade(const ChatStyle& style, std::string open, std::string close, bool begins_open);

  [[nodiscard]] std::string show(std::string_view text);
  // At the end of the answer: what was held back, and the end of the style.
  [[nodiscard]] std::string end();

 private:
  enum class State { start, reasoning, content };

  ChatStyle style_;
  std::string open_, close_;
  State state_;
  bool is_shaded_ = false;
  std::string held_;  // start: all text so far; reasoning: what was shown last, in which `close` may have begun
};

}  // namespace troupe::cli
