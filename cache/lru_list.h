// Ids in the order of their last use.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe::cache {

// A doubly linked list over ids below num_ids, each at most once. Every call is O(1) and allocates nothing.
class LruList {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit LruList(std::uint32_t num_ids) : links_(num_ids) {}

  // push_newest: the id must not be in the list; remove: it must be. Neither is checked.
  void push_newest(std::uint32_t id) {
    links_[id] = {newest_, kNone};
    (newest_ == kNone ? oldest_ : links_[newest_].newer) = id;
    newest_ = id;
    ++size_;
  }
  void remove(std::uint32_t id) {
    const Link link = links_[id];
    (link.older == kNone ? oldest_ : links_[link.older].newer) = link.newer;
    (link.newer == kNone ? newest_ : links_[link.newer].older) = link.older;
    --size_;
  }

  [[nodiscard]] std::uint32_t oldest() const { return oldest_; }  // kNone: the list is empty
  [[nodiscard]] std::uint32_t next_newer(std::uint32_t id) const { return links_[id].newer; }
  [[nodiscard]] std::uint32_t size() const { return size_; }

 private:
  struct Link {
    std::uint32_t older = kNone, newer = kNone;
  };
  std::vector<Link> links_;
  std::uint32_t oldest_ = kNone, newest_ = kNone;
  std::uint32_t size_ = 0;
};

}  // namespace troupe::cache
