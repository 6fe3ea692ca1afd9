#include <algorithm>
#include <utility>

#include "config/assert.h"
#include "engine/drafting/drafter.h"

namespace troupe::engine {
namespace {

constexpr std::size_t kFewestSlots = 256;

}  // namespace

std::size_t NgramDrafter::slot_of(std::span<const TokenId> tokens, std::size_t end) const {
  std::uint64_t hash = 0;
  for (std::size_t i = end - kLength; i < end; ++i)
    hash = (hash ^ static_cast<std::uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15ull;
  return (hash >> 32) & (heads_.size() - 1);
}

// The table has at least as many slots as ends.
void NgramDrafter::grow(std::span<const TokenId> tokens, std::size_t num_ends) {
  std::size_t slots = std::max(heads_.size(), kFewestSlots);
  while (slots < num_ends) slots *= 2;
  if (slots == heads_.size()) return;
  heads_.assign(slots, kNone);
  for (std::size_t end = kLength; end <= num_indexed_; ++end)
    previous_[end] = std::exchange(heads_[slot_of(tokens, end)], static_cast<std::uint32_t>(end));
}

bool NgramDrafter::extend(std::span<const TokenId> tokens, std::size_t& room) {
  TROUPE_ASSERT(num_indexed_ <= tokens.size() && tokens.size() < kNone);
  const std::size_t until = num_indexed_ + std::min(tokens.size() - num_indexed_, room);
  room -= until - num_indexed_;
  grow(tokens, until + 1);
  previous_.resize(until + 1, kNone);
  for (; num_indexed_ < until; ++num_indexed_) {
    const std::size_t end = num_indexed_ + 1;
    if (end < kLength) continue;
    previous_[end] = std::exchange(heads_[slot_of(tokens, end)], static_cast<std::uint32_t>(end));
  }
  return until == tokens.size();
}

std::size_t NgramDrafter::propose(std::span<const TokenId> tokens, std::size_t most, std::vector<TokenId>& out) const {
  out.clear();
  TROUPE_ASSERT(num_indexed_ == tokens.size());
  if (tokens.size() <= kLength) return 0;
  std::size_t best_end = 0, best_length = kLength - 1;
  std::uint32_t end = previous_[tokens.size()];
  std::size_t num_candidates = 0;
  for (std::size_t i = 0; i < kMaxHops && end != kNone; ++i, end = previous_[end]) {
    const std::size_t longest = std::min<std::size_t>(end, kMaxMatch);
    std::size_t length = 0;
    while (length < longest && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
    if (length < kLength) continue;  // others with the same hash
    if (length > best_length) {
      best_length = length;
      best_end = end;
    }
    if (++num_candidates == kMaxCandidates || length == kMaxMatch) break;
  }
  if (best_end == 0) return 0;
  // Past the last token the proposal goes on with itself: a text that repeats with a short period.
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t from = best_end + i;
    out.push_back(from < tokens.size() ? tokens[from] : out[from - tokens.size()]);
  }
  return best_length;
}

}  // namespace troupe::engine
