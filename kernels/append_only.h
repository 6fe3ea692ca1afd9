// A list that only grows, in memory that never moves.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <span>

namespace troupe::kernels {

// Holds pointers to objects that live as long as the program. Any thread may read at any time; a span from entries()
// stays valid while entries are added. Calls of add() must be serialised by a lock of the caller.
template <class T, std::size_t capacity>
class AppendOnly {
 public:
  std::span<const T* const> entries() const { return {entries_.data(), count_.load(std::memory_order_acquire)}; }
  bool full() const { return entries().size() == capacity; }
  // Must not be full.
  void add(const T& entry) {
    const std::size_t count = entries().size();
    entries_[count] = &entry;
    count_.store(count + 1, std::memory_order_release);
  }

 private:
  std::array<const T*, capacity> entries_{};
  std::atomic<std::size_t> count_ = 0;
};

}  // namespace troupe::kernels
