// The requests of one tenant that were refused and told to come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <unordered_map>

namespace troupe::scheduler {

// A request is known by its content, a number that is equal for a request and its retry; two of one content are
// expected twice. Times are seconds of any clock. Not thread-safe. O(1), amortised; at most kMax are kept.
class ExpectedRetries {
 public:
  static constexpr std::size_t kMax = 2048;
  // A retry is expected for half of the wait longer, which is what clients add at random, and this.
  static constexpr double kSlackSeconds = 2;

  // tokens: that its prompt needs of a bucket; 0: it needs a place. None is added while kMax are expected.
  void add(std::uint64_t content, double wait, std::uint64_t tokens, double now) {
    forget_lapsed(now);
    if (by_content_.size() == kMax) return;
    by_content_.emplace(content, Retry{now + 1.5 * wait + kSlackSeconds, tokens});
    count(tokens, 1);
  }
  // Whether a request with this content was told to come back until now or later; true once for each that was. One that
  // comes early finds what is free.
  [[nodiscard]] bool take(std::uint64_t content, double now) {
    const auto [begin, end] = by_content_.equal_range(content);
    for (auto it = begin; it != end; ++it) {
      if (now > it->second.until) continue;
      erase(it);
      return true;
    }
    return false;
  }

  // How many wait for a place; and the prompts' tokens of the others.
  [[nodiscard]] std::uint64_t places(double now) { return forget_lapsed(now), places_; }
  [[nodiscard]] std::uint64_t tokens(double now) { return forget_lapsed(now), tokens_; }
  [[nodiscard]] bool empty(double now) { return forget_lapsed(now), by_content_.empty(); }

 private:
  struct Retry {
    double until;
    std::uint64_t tokens;
  };
  using Map = std::unordered_multimap<std::uint64_t, Retry>;

  void count(std::uint64_t tokens, int sign) {
    places_ += static_cast<std::uint64_t>(sign) * (tokens == 0 ? 1 : 0);
    tokens_ += static_cast<std::uint64_t>(sign) * tokens;
  }
  Map::iterator erase(Map::iterator it) {
    count(it->second.tokens, -1);
    return by_content_.erase(it);
  }
  // Once in a second.
  void forget_lapsed(double now) {
    if (by_content_.empty() || now < next_look_) return;
    next_look_ = now + 1;
    for (auto it = by_content_.begin(); it != by_content_.end();)
      it = it->second.until < now ? erase(it) : std::next(it);
  }

  Map by_content_;
  std::uint64_t places_ = 0, tokens_ = 0;
  double next_look_ = -std::numeric_limits<double>::infinity();
};

}  // namespace troupe::scheduler
