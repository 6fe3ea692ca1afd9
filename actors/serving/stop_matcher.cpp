#include "actors/serving/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "config/assert.h"

namespace troupe::actors {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings) : stops_(std::move(stop_strings)) {
  for (const std::string& stop : stops_) TROUPE_ASSERT(!stop.empty());
}

StopMatcher::Found StopMatcher::push(const std::string& text, bool may_match) {
  if (stops_.empty()) return {text, std::nullopt};
  held_ += text;
  std::size_t first = std::string::npos;
  std::optional<std::size_t> which;
  for (std::size_t i = 0; may_match && i < stops_.size(); ++i) {
    const std::size_t at = held_.find(stops_[i]);
    if (at < first) {
      first = at;
      which = i;
    }
  }
  const std::size_t ready = which ? first : held_.size() - might_begin_a_stop();
  Found found{held_.substr(0, ready), which};
  held_.erase(0, which ? held_.size() : ready);
  return found;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

std::size_t StopMatcher::might_begin_a_stop() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

}  // namespace troupe::actors
