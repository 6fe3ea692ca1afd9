// The progress of `troupe load` on stderr.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "bench/load/drivers/troupe_driver.h"
#include "cli/terminal/output.h"
#include "cli/terminal/status_line.h"

namespace troupe::cli {

inline constexpr double kLoadLineInterval_s = 5;  // between two lines of progress, if stderr is no terminal

// Shows the progress on stderr: one line that changes on a terminal, a line every few seconds elsewhere.
class LoadMeter {
 public:
  explicit LoadMeter(bool on_terminal) : on_terminal_(on_terminal) {}
  ~LoadMeter() {
    if (on_terminal_) StatusLine::of_stderr().erase();
  }

  void show(const load::Progress& progress) {
    const double seconds = progress.at_s - last_.at_s;
    if (!on_terminal_ && (progress.at_s == 0 || seconds < kLoadLineInterval_s)) return;
    const double tokens = static_cast<double>(progress.tokens - last_.tokens);
    const std::string total = progress.total ? fmt::format("/{}", *progress.total) : "";
    print(fmt::format("{:.0f} s: {}{} ended, {} under way, {:.0f} tokens/s, {} refused, {} failed", progress.at_s,
                      progress.ended, total, progress.sent - progress.ended, seconds > 0 ? tokens / seconds : 0,
                      progress.refused, progress.failed));
    last_ = progress;
  }

  void show_verified(std::uint64_t done, std::size_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!on_terminal_ && std::chrono::duration<double>(now - last_line_).count() < kLoadLineInterval_s) return;
    last_line_ = now;
    print(fmt::format("verifying: {} of at most {}", done, total));
  }

 private:
  void print(const std::string& text) const {
    if (on_terminal_)
      StatusLine::of_stderr().draw(text);
    else
      complain("troupe load", text);
  }

  bool on_terminal_;
  load::Progress last_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

}  // namespace troupe::cli
