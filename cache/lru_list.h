// Ids in the order of their last use.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe::cache {

// Doubly linked lists over ids below num_ids, each of which is in at most one of them. Every call is O(1) and allocates
// nothing.
class LruLinks {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  struct List {
    std::uint32_t oldest = kNone, newest = kNone;  // kNone: the list is empty
    std::uint32_t size = 0;
  };

  explicit LruLinks(std::uint32_t num_ids) : links_(num_ids) {}

  // push_*: the id must be in no list; remove: it must be in this one. Neither is checked.
  void push_newest(List& list, std::uint32_t id) {
    links_[id] = {list.newest, kNone};
    (list.newest == kNone ? list.oldest : links_[list.newest].newer) = id;
    list.newest = id;
    ++list.size;
  }
  void push_oldest(List& list, std::uint32_t id) {
    links_[id] = {kNone, list.oldest};
    (list.oldest == kNone ? list.newest : links_[list.oldest].older) = id;
    list.oldest = id;
    ++list.size;
  }
  void remove(List& list, std::uint32_t id) {
    const Link link = links_[id];
    (link.older == kNone ? list.oldest : links_[link.older].newer) = link.newer;
    (link.newer == kNone ? list.newest : links_[link.newer].older) = link.older;
    --list.size;
  }
  [[nodiscard]] std::uint32_t next_newer(std::uint32_t id) const { return links_[id].newer; }

 private:
  struct Link {
    std::uint32_t older = kNone, newer = kNone;
  };
  std::vector<Link> links_;
};

}  // namespace troupe::cache
