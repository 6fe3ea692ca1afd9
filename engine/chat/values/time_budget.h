// The time that one rendering, or several, may take.
#pragma once

#include <chrono>

namespace troupe::engine::chat {

// Begins when it is made. For one thread, the one that made it: the processor time is this thread's.
class TimeBudget {
 public:
  using Time = std::chrono::nanoseconds;
  // Where the times come from; a test has its own.
  struct Clock {
    Time (*elapsed)();
    Time (*processor)();
  };
  static const Clock kSystem;

  // processor: of the thread alone, so that busy neighbours do not count. elapsed: on a clock; it ends a thread that
  // had the processor for a quarter of `processor` by then, as one that is starved does no harm and would be ended for
  // what others do.
  TimeBudget(std::chrono::milliseconds elapsed, std::chrono::milliseconds processor, const Clock& clock = kSystem);
  explicit TimeBudget(std::chrono::milliseconds elapsed) : TimeBudget(elapsed, elapsed) {}

  // Reads the clock: about 20 ns, and 200 ns more where the processor time counts.
  bool is_used_up();
  // What was_used_up() says stays; the bound is for a message.
  bool was_used_up() const { return used_up_; }
  std::chrono::milliseconds bound() const { return processor_; }

 private:
  Clock clock_;
  std::chrono::milliseconds elapsed_, processor_;
  Time begin_, processor_begin_;
  bool used_up_ = false;
};

}  // namespace troupe::engine::chat
