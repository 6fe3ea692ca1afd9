// A progress line at the bottom of a terminal's stderr, drawn again and again. Other output to stderr erases it first.
#pragma once

#include <spdlog/fwd.h>

#include <cstdio>
#include <functional>
#include <mutex>
#include <string_view>

namespace troupe::cli {

// Any thread. `out` must be a terminal, or a test's file.
class StatusLine {
 public:
  explicit StatusLine(std::FILE* out) : out_(out) {}
  ~StatusLine() { erase(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // The process's status line. Callers of draw() check that stderr is a terminal.
  static StatusLine& of_stderr();

  // Replaces what was drawn by this Printable text.
  void draw(std::string_view text);
  void erase();
  // Erases, and keeps others from drawing until `write`, which must not call this object, has returned.
  void write_above(const std::function<void()>& write);

 private:
  void erase_locked();

  std::FILE* out_;
  std::mutex mutex_;
  bool drawn_ = false;
};

// From now on the lines of this logger are written above `line`. Before other threads log; a second call does nothing.
void log_above(StatusLine& line, spdlog::logger& logger);

}  // namespace troupe::cli
