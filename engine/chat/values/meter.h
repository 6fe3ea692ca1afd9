// The work of a rendering: how much, how long, and whether it is still wanted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/chat/values/limits.h"
#include "engine/chat/values/time_budget.h"

namespace troupe::engine::chat {

// One step is at most about 100 ns of work: a part of the template evaluated, 64 bytes copied or compared, 8 bytes of
// characters looked at, an item moved, a slot of a table searched. Who works says so before or after each piece of at
// most kMaxPiece steps; so the clock and the flag are read, and the work ends, within a fraction of a millisecond.
//
// Not thread-safe, but for the flag.
class Meter {
 public:
  static constexpr std::uint64_t kStepsPerLook = 1024;
  static constexpr std::size_t kMaxPiece = 2048;
  static constexpr std::size_t kBytesPerStep = 64;
  static constexpr std::size_t kBytesPerPiece = kMaxPiece * kBytesPerStep / 2;

  // time, interrupt: may be null. Both must outlive this.
  Meter(std::uint64_t max_steps, TimeBudget* time, const std::atomic<bool>* interrupt);

  // Throws Interrupted once the flag is set, and TemplateError once the time or the steps are used up.
  void work(std::size_t steps = 1) {
    steps_ += steps;
    if (steps_ >= next_look_) look();
  }
  // Copies, compares or searches so many bytes.
  void touch(std::size_t bytes) { work(1 + bytes / kBytesPerStep); }

  std::uint64_t steps() const { return steps_; }
  // The most steps between two looks, so far.
  std::uint64_t longest_piece() const { return longest_piece_; }

 private:
  void look();

  std::uint64_t max_steps_;
  TimeBudget* time_;
  const std::atomic<bool>* interrupt_;
  std::uint64_t steps_ = 0, last_look_ = 0, next_look_, longest_piece_ = 0;
};

}  // namespace troupe::engine::chat
