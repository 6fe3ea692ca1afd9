// Lines from a person or a pipe. Where stdin and stderr are a terminal, with editing and history (libedit).
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace troupe::cli {

// Main thread only; one per process.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool is_terminal() const { return terminal_ != nullptr; }
  // Between two of these a prompt has what takes no room on the screen. Not at its end: libedit drops it there.
  static constexpr char kTakesNoRoom = '\1';

  // The next line without its end; nothing at the end of the input. At a terminal Ctrl-C gives an empty line, and
  // `was_interrupted` says so then; what is pasted is a part of one line, with its ends of lines. Lines longer than
  // kMaxLineBytes are cut into several.
  std::optional<std::string> read(const std::string& prompt);
  bool was_interrupted() const { return was_interrupted_; }

  static constexpr std::size_t kMaxLineBytes = 1u << 20;

 private:
  struct Terminal;
  std::optional<std::string> read_plain();

  std::unique_ptr<Terminal> terminal_;
  bool was_interrupted_ = false;
};

}  // namespace troupe::cli
