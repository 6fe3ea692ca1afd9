// A set of ids from a counter, stored as ranges of consecutive ids: a set without gaps is one range, however large.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace troupe::cache {

// O(log ranges) per call. 2^64 - 1 is not a valid id.
class IdSet {
 public:
  void insert(std::uint64_t id) {
    if (contains(id)) return;
    auto next = ranges_.upper_bound(id);
    const bool joins_next = next != ranges_.end() && next->first == id + 1;
    const bool joins_previous = next != ranges_.begin() && std::prev(next)->second == id;
    if (joins_previous) {
      std::prev(next)->second = joins_next ? next->second : id + 1;
    } else {
      ranges_.emplace_hint(next, id, joins_next ? next->second : id + 1);
    }
    if (joins_next) ranges_.erase(next);
  }
  [[nodiscard]] bool contains(std::uint64_t id) const {
    const auto next = ranges_.upper_bound(id);
    return next != ranges_.begin() && id < std::prev(next)->second;
  }
  void clear() { ranges_.clear(); }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // first id -> one past the last
};

}  // namespace troupe::cache
