// How fast live requests end, to tell a refused one when to come back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "config/assert.h"

namespace troupe::scheduler {

// A mean over about the last kMemorySeconds in which something was live; time without live requests says nothing about
// how fast they end. Times are seconds of any clock; one that is before an earlier one counts as that. Not thread-safe.
// O(1).
class DrainRate {
 public:
  static constexpr double kMemorySeconds = 30;

  void begin(std::uint32_t count, double now) {
    advance(now);
    live_ += count;
  }
  // served: it was computed; a request that is refused or cancelled before that says nothing.
  void end(bool served, double now) {
    TROUPE_ASSERT(live_ > 0);
    advance(now);
    --live_;
    if (served) ended_ += 1;
  }

  [[nodiscard]] std::uint32_t live() const { return live_; }
  // Mean time between two ends; none if nothing has ended yet.
  [[nodiscard]] std::optional<double> seconds_each(double now) {
    advance(now);
    return ended_ > 0 ? std::optional(seconds_ / ended_) : std::nullopt;
  }
  // How long something has been live, at most kMemorySeconds.
  [[nodiscard]] double busy_seconds(double now) {
    advance(now);
    return seconds_;
  }

 private:
  void advance(double now) {
    if (live_ > 0 && now > last_) {
      const double kept = std::exp((last_ - now) / kMemorySeconds);
      ended_ *= kept;
      seconds_ = seconds_ * kept + kMemorySeconds * (1 - kept);
    }
    last_ = std::max(last_, now);
  }

  std::uint32_t live_ = 0;
  double ended_ = 0, seconds_ = 0;  // both decay alike
  double last_ = 0;
};

}  // namespace troupe::scheduler
