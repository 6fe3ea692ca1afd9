#include "cli/store/byte_ranges.h"

#include <algorithm>
#include <iterator>

namespace troupe::cli {

void ByteRanges::add(ByteRange range) {
  if (range.end <= range.begin) return;
  auto next = ends_.upper_bound(range.begin);
  if (next != ends_.begin() && std::prev(next)->second >= range.begin) --next;
  while (next != ends_.end() && next->first <= range.end) {
    range.begin = std::min(range.begin, next->first);
    range.end = std::max(range.end, next->second);
    total_ -= next->second - next->first;
    next = ends_.erase(next);
  }
  ends_.emplace(range.begin, range.end);
  total_ += range.size();
}

std::uint64_t ByteRanges::front() const {
  return ends_.empty() || ends_.begin()->first != 0 ? 0 : ends_.begin()->second;
}

std::optional<ByteRange> ByteRanges::first_gap(std::uint64_t size, std::uint64_t most) const {
  const std::uint64_t begin = front();
  if (begin >= size) return std::nullopt;
  const auto next = ends_.upper_bound(begin);
  const std::uint64_t end = next == ends_.end() ? size : std::min(size, next->first);
  return ByteRange{begin, std::min(end, begin + std::min(most, size - begin))};
}

std::vector<ByteRange> ByteRanges::ranges() const {
  std::vector<ByteRange> all;
  for (const auto& [begin, end] : ends_) all.push_back({begin, end});
  return all;
}

}  // namespace troupe::cli
