// Whose turn it is: things of several users, of which each user gets one done in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

namespace troupe::scheduler {

// The things of one user keep their order; however many one has, another waits for one of them at most. Not
// thread-safe. O(1).
template <class T>
class TurnList {
 public:
  void push(std::uint32_t uid, T item) {
    std::deque<T>& own = items_[uid];
    if (own.empty()) order_.push_back(uid);
    own.push_back(std::move(item));
    ++size_;
  }
  // The next one; nothing if there is none.
  [[nodiscard]] std::optional<T> pop() {
    if (order_.empty()) return std::nullopt;
    const std::uint32_t uid = order_.front();
    order_.pop_front();
    const auto own = items_.find(uid);
    std::optional<T> item = std::move(own->second.front());
    own->second.pop_front();
    if (own->second.empty()) {
      items_.erase(own);
    } else {
      order_.push_back(uid);
    }
    --size_;
    return item;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::unordered_map<std::uint32_t, std::deque<T>> items_;  // no user without any
  std::deque<std::uint32_t> order_;                         // users, the next first
  std::size_t size_ = 0;
};

}  // namespace troupe::scheduler
