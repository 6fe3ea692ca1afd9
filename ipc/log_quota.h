// Bounds log lines per second, so that a client that is refused again and again cannot fill the log. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace troupe::ipc {

inline constexpr int kMaxLogLinesPerSecond = 5;

// One per kind of line.
class LogQuota {
 public:
  // nullopt: no line may be written at `now`. Else the number of lines left out since the last one. O(1).
  [[nodiscard]] std::optional<std::uint64_t> take(std::chrono::steady_clock::time_point now) {
    if (now - second_begin_ >= std::chrono::seconds(1)) {
      second_begin_ = now;
      lines_ = 0;
    }
    if (lines_ == kMaxLogLinesPerSecond) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  std::chrono::steady_clock::time_point second_begin_{};
  int lines_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace troupe::ipc
