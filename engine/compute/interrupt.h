// Interrupts long work on a text from another thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

namespace troupe::engine {

// Thrown by Interrupt::poll() once its flag is set.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// Reads a flag once in kCallsPerLook calls: every some tens of microseconds in a loop over a text. Not thread-safe; the
// flag may be set by any thread.
class Interrupt {
 public:
  // flag: may be null, then poll() never throws.
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
