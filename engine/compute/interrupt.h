// How long work on a text is stopped from outside.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

namespace troupe::engine {

// Thrown by work whose flag was set.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// Looks at a flag once in kCallsPerLook calls: some tens of microseconds of any loop over a text. Not thread-safe; the
// flag may be set by any thread.
class Interrupt {
 public:
  // flag: null: never.
  explicit Interrupt(const std::atomic<bool>* flag) : flag_(flag) {}

  void poll() {
    if (++num_calls_ % kCallsPerLook == 0 && flag_ && flag_->load(std::memory_order_relaxed)) throw Interrupted();
  }

 private:
  static constexpr std::uint32_t kCallsPerLook = 1024;

  const std::atomic<bool>* flag_;
  std::uint32_t num_calls_ = 0;
};

}  // namespace troupe::engine
