// A stable sort whose memory is counted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/chat/values/charged.h"

namespace troupe::engine::chat {

// Merges ever longer runs. is_less may throw, and may contradict itself (nan): then the order is any. It is what says
// how much work this is. O(n log n).
template <class T, class IsLess>
void sort_stably(ChargedVector<T>& items, IsLess is_less) {
  ChargedVector<T> merged(items.size());
  for (std::size_t run = 1; run < items.size(); run *= 2) {
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * run) {
      const std::size_t middle = std::min(begin + run, items.size()), end = std::min(begin + 2 * run, items.size());
      std::size_t left = begin, right = middle;
      for (std::size_t at = begin; at < end; ++at) {
        const bool takes_right = left == middle || (right < end && is_less(items[right], items[left]));
        merged[at] = std::move(items[takes_right ? right++ : left++]);
      }
    }
    std::swap(items, merged);
  }
}

}  // namespace troupe::engine::chat
