#include "engine/chat/values/text.h"

#include <algorithm>
#include <utility>

#include "config/assert.h"

namespace troupe::engine::chat {

Text::Text(std::string_view bytes, Origin origin) : bytes_(bytes) { add_range(0, bytes_.size(), origin); }

bool Text::is_all_input(Meter& meter) const {
  std::size_t count = 0;
  for (const ByteRange& range : input_) {
    meter.work();
    count += range.end - range.begin;
  }
  return count == size();
}

Origin Text::origin(std::size_t position) const {
  const auto after = std::upper_bound(input_.begin(), input_.end(), position,
                                      [](std::size_t wanted, const ByteRange& range) { return wanted < range.begin; });
  if (after == input_.begin() || position >= std::prev(after)->end) return kFromTemplate;
  return std::prev(after)->origin;
}

Text Text::part(std::size_t begin, std::size_t end, Meter& meter) const {
  Text part;
  part.reserve(end - begin);
  part.append(*this, begin, end, meter);
  return part;
}

void Text::append(const Text& other, std::size_t begin, std::size_t end, Meter& meter) {
  TROUPE_ASSERT(begin <= end && end <= other.size());
  TROUPE_ASSERT(&other != this);
  while (true) {
    const std::size_t stop = std::min(end, begin + Meter::kBytesPerPiece);
    meter.touch(stop - begin);
    append_piece(other, begin, stop);
    if (stop == end) return;
    begin = stop;
  }
}

void Text::append_piece(const Text& other, std::size_t begin, std::size_t end) {
  const std::size_t shift = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  if (other.input_.empty()) return;
  auto range = std::partition_point(other.input_.begin(), other.input_.end(),
                                    [&](const ByteRange& each) { return each.end <= begin; });
  for (; range != other.input_.end() && range->begin < end; ++range)
    add_range(shift + std::max(range->begin, begin) - begin, shift + std::min(range->end, end) - begin, range->origin);
}

void Text::append(std::string_view bytes, Origin origin, Meter& meter) {
  while (true) {
    const std::string_view piece = bytes.substr(0, Meter::kBytesPerPiece);
    meter.touch(piece.size());
    const std::size_t begin = bytes_.size();
    bytes_ += piece;
    add_range(begin, bytes_.size(), origin);
    if (piece.size() == bytes.size()) return;
    bytes.remove_prefix(piece.size());
  }
}

void Text::add_range(std::size_t begin, std::size_t end, Origin origin) {
  if (begin == end || origin == kFromTemplate) return;
  if (!input_.empty() && input_.back().end == begin && input_.back().origin == origin)
    input_.back().end = end;
  else
    input_.push_back({begin, end, origin});
}

}  // namespace troupe::engine::chat
