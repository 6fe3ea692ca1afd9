#include "engine/chat/values/text.h"

#include <algorithm>
#include <utility>

#include "config/assert.h"

namespace troupe::engine::chat {

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) { add_range(0, bytes_.size(), origin); }

bool Text::is_all_input() const {
  std::size_t count = 0;
  for (const ByteRange& range : input_) count += range.end - range.begin;
  return count == size();
}

Origin Text::origin(std::size_t position) const {
  const auto after = std::upper_bound(input_.begin(), input_.end(), position,
                                      [](std::size_t wanted, const ByteRange& range) { return wanted < range.begin; });
  if (after == input_.begin() || position >= std::prev(after)->end) return kFromTemplate;
  return std::prev(after)->origin;
}

Text Text::substr(std::size_t begin, std::size_t end) const {
  Text part;
  part.append(*this, begin, end);
  return part;
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  TROUPE_ASSERT(begin <= end && end <= other.size());
  TROUPE_ASSERT(&other != this);
  const std::size_t shift = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  auto range = std::partition_point(other.input_.begin(), other.input_.end(),
                                    [&](const ByteRange& each) { return each.end <= begin; });
  for (; range != other.input_.end() && range->begin < end; ++range)
    add_range(shift + std::max(range->begin, begin) - begin, shift + std::min(range->end, end) - begin, range->origin);
}

void Text::append(std::string_view bytes, Origin origin) {
  const std::size_t begin = bytes_.size();
  bytes_ += bytes;
  add_range(begin, bytes_.size(), origin);
}

void Text::add_range(std::size_t begin, std::size_t end, Origin origin) {
  if (begin == end || origin == kFromTemplate) return;
  if (!input_.empty() && input_.back().end == begin && input_.back().origin == origin)
    input_.back().end = end;
  else
    input_.push_back({begin, end, origin});
}

}  // namespace troupe::engine::chat
