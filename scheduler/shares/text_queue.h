// Texts that wait for a thread to encode or decode them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "scheduler/shares/turn_list.h"

namespace troupe::scheduler {

// Texts up to this size are small: at most about 10 ms of one thread.
inline constexpr std::uint64_t kMaxSmallTextBytes = 16u << 10;

// Small and large texts wait in two fair queues (TurnList), with their bytes as cost. With at least max_large + 1
// threads, one thread is always free for small texts: a small text waits for small ones only, for at most one of each
// other user, and never for a large one, not even of its own user. On the other threads large texts go before small
// ones, so neither kind starves the other.
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

  void push(TenantId tenant, std::uint64_t bytes, T item) {
    (bytes > kMaxSmallTextBytes ? large_ : small_).push(tenant, std::move(item), bytes + kBytesPerText);
  }
  // The next text for an idle thread; nothing if the queue is empty or holds only large texts and max_large of them are
  // being worked on. After a large text the caller calls large_done().
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
  // Added to each text's cost: waking a thread and answering takes about as long as this many bytes.
  static constexpr std::uint64_t kBytesPerText = 64;

  const std::uint32_t max_large_;
  std::uint32_t num_large_ = 0;  // being worked on
  TurnList<T> small_, large_;
};

}  // namespace troupe::scheduler
