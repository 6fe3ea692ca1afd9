// Texts that wait for a thread to encode or decode them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "scheduler/turn_list.h"

namespace troupe::scheduler {

// Texts up to this size are small: about ten milliseconds of one thread.
inline constexpr std::uint64_t kMaxSmallTextBytes = 16u << 10;

// Small texts and large ones wait apart, each in turns of their users by bytes (TurnList). With max_large + 1 threads
// at work, at least one is always free for small texts: a small text waits for small ones alone, of each other user for
// at most one, and never for a large one, not even of its own user. Large texts go before small ones on the other
// threads, so neither kind can keep the other waiting for ever.
//
// Not thread-safe.
template <class T>
class TextQueue {
 public:
  struct Next {
    T item;
    bool is_large;
  };

  // max_large: large texts that may be worked on at once; >= 1.
  explicit TextQueue(std::uint32_t max_large) : max_large_(max_large) {}

  void push(std::uint32_t uid, std::uint64_t bytes, T item) {
    (bytes > kMaxSmallTextBytes ? large_ : small_).push(uid, std::move(item), bytes + kBytesPerText);
  }
  // What a thread without work does next; nothing if there is nothing that it may do. Of a large text large_done() has
  // to tell when it is done.
  [[nodiscard]] std::optional<Next> pop() {
    if (num_large_ < max_large_) {
      if (auto next = large_.pop()) {
        ++num_large_;
        return Next{*std::move(next), true};
      }
    }
    if (auto next = small_.pop()) return Next{*std::move(next), false};
    return std::nullopt;
  }
  void large_done() {
    TROUPE_ASSERT(num_large_ > 0);
    --num_large_;
  }
  // Takes out all texts for which `unwanted(text)` is true.
  template <class Unwanted>
  [[nodiscard]] std::vector<T> remove_if(Unwanted unwanted) {
    std::vector<T> removed = large_.remove_if(unwanted);
    for (T& item : small_.remove_if(unwanted)) removed.push_back(std::move(item));
    return removed;
  }
  [[nodiscard]] std::size_t size() const { return small_.size() + large_.size(); }

 private:
  // What a text costs besides its bytes, in bytes: as much as waking a thread and answering.
  static constexpr std::uint64_t kBytesPerText = 64;

  const std::uint32_t max_large_;
  std::uint32_t num_large_ = 0;  // being worked on
  TurnList<T> small_, large_;
};

}  // namespace troupe::scheduler
