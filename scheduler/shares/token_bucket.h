// A budget that refills all the time: tokens per minute, frames per second.
#pragma once

#include <algorithm>

namespace troupe::scheduler {

// Full at first. Times are seconds of any clock; one that is before an earlier one counts as that. Not thread-safe.
// O(1).
class TokenBucket {
 public:
  // capacity: the most that is saved up. per_second: the refill.
  TokenBucket(double capacity, double per_second) : capacity_(capacity), per_second_(per_second), level_(capacity) {}

  // What is left stays, up to the new capacity; what is refilled since the last take counts at the new rate.
  void resize(double capacity, double per_second) {
    capacity_ = capacity;
    per_second_ = per_second;
    level_ = std::min(level_, capacity);
  }

  // What is left; below 0: a debt, which the refill pays back first.
  [[nodiscard]] double level(double now) const {
    return std::min(capacity_, level_ + per_second_ * std::max(0.0, now - last_));
  }
  [[nodiscard]] bool is_full(double now) const { return level(now) >= capacity_; }

  // Takes an amount that cannot be refused any more, or gives one back.
  void take(double amount, double now) {
    level_ = level(now) - amount;
    last_ = std::max(last_, now);
  }
  void give_back(double amount, double now) { take(-amount, now); }

  // Seconds until `amount` is left if nothing is taken meanwhile; 0: it is. Infinite if nothing is refilled. An amount
  // above the capacity is never left: the caller checks that before.
  [[nodiscard]] double wait_for(double amount, double now) const {
    const double missing = amount - level(now);
    return missing <= kRounding ? 0 : missing / per_second_;
  }
  // For an amount that is refused now: as wait_for(), but when the amounts that were reserved before have been taken.
  // So requests that are refused together come back one after another. What is reserved and not taken delays others by
  // kMaxDelay at most.
  [[nodiscard]] double reserve(double amount, double now) {
    const double alone = now + wait_for(amount, now);
    const double after_others = reserved_until_ > now ? reserved_until_ + amount / per_second_ : alone;
    reserved_until_ = std::clamp(after_others, alone, alone + kMaxDelay);
    return reserved_until_ - now;
  }

  static constexpr double kMaxDelay = 60;  // seconds

 private:
  static constexpr double kRounding = 1e-6;  // amounts are whole; sums of seconds are not exact

  double capacity_, per_second_, level_;
  double last_ = 0;            // when level_ was right
  double reserved_until_ = 0;  // when the last reserved amount can be taken
};

}  // namespace troupe::scheduler
