// A rate limit: `rate` per second, with bursts of up to a tenth of that (at least 1). Plain: time is an argument. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace troupe::ipc {

class TokenBucket {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // rate: above 0. The bucket is full at first.
  explicit TokenBucket(std::uint32_t rate) : rate_(rate), burst_(burst_of(rate)), tokens_(burst_) {}

  // Changes the rate; the tokens in the bucket stay, up to the new burst.
  void set_rate(std::uint32_t rate) {
    rate_ = rate;
    burst_ = burst_of(rate);
    tokens_ = std::min(tokens_, burst_);
  }

  // Takes a token if there is one at `now`. O(1).
  [[nodiscard]] bool take(TimePoint now) {
    refill(now);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

  // How long after `now` there will be a token; at least a millisecond.
  [[nodiscard]] std::chrono::milliseconds time_to_next(TimePoint now) {
    refill(now);
    const auto wait = std::chrono::duration<double>((1 - tokens_) / rate_);
    return std::max(std::chrono::milliseconds(1), std::chrono::ceil<std::chrono::milliseconds>(wait));
  }

 private:
  static double burst_of(std::uint32_t rate) { return std::max(1.0, rate / 10.0); }
  void refill(TimePoint now) {
    if (now > last_) tokens_ = std::min(burst_, tokens_ + rate_ * std::chrono::duration<double>(now - last_).count());
    last_ = std::max(last_, now);
  }

  double rate_;
  double burst_;
  double tokens_;
  TimePoint last_{};
};

}  // namespace troupe::ipc
