#include "engine/tokenizers/longest_match.h"

#include <algorithm>

namespace troupe::engine {

LongestMatch::LongestMatch(std::vector<Text> texts) : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const Text& text) { return text.first.empty(); });
  std::sort(texts_.begin(), texts_.end());
  texts_.erase(
      std::unique(texts_.begin(), texts_.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
      texts_.end());
  std::size_t next = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    first_[byte] = static_cast<std::uint32_t>(next);
    while (next < texts_.size() && static_cast<std::uint8_t>(texts_[next].first[0]) == byte) ++next;
  }
  first_[256] = static_cast<std::uint32_t>(next);
}

std::optional<LongestMatch::Match> LongestMatch::find(std::string_view text) const {
  std::optional<Match> longest;
  if (text.empty()) return longest;
  const auto byte_at = [](const std::string& candidate, std::size_t at) {
    return static_cast<std::uint8_t>(candidate[at]);
  };
  const auto front = static_cast<std::uint8_t>(text[0]);
  auto begin = texts_.begin() + first_[front], end = texts_.begin() + first_[std::size_t{front} + 1];
  for (std::size_t length = 1; begin != end; ++length) {
    // All texts in the range begin with text[0, length); a text of exactly this length is the first.
    if (begin->first.size() == length) {
      longest = Match{begin->second, length};
      ++begin;
    }
    if (length == text.size()) break;
    const auto next = static_cast<std::uint8_t>(text[length]);
    begin = std::partition_point(begin, end, [&](const auto& each) { return byte_at(each.first, length) < next; });
    end = std::partition_point(begin, end, [&](const auto& each) { return byte_at(each.first, length) == next; });
  }
  return longest;
}

}  // namespace troupe::engine
