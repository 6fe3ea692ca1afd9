#include "config/assert.h"
#include "engine/drafting/drafter.h"

namespace troupe::engine {

bool SuffixDrafter::extend(std::span<const TokenId> tokens, std::size_t& room) {
  TROUPE_ASSERT(num_indexed() <= tokens.size());
  for (; room > 0 && num_indexed() < tokens.size(); --room) {
    if (automaton_.size() == max_tokens_) {
      begin_ += max_tokens_ / 2;
      // What is left is indexed again by this call and the next ones.
      automaton_.clear();
    }
    automaton_.push(tokens[num_indexed()]);
  }
  return num_indexed() == tokens.size();
}

std::size_t SuffixDrafter::propose(std::span<const TokenId> tokens, std::size_t most, std::vector<TokenId>& out) const {
  out.clear();
  TROUPE_ASSERT(num_indexed() == tokens.size());
  const SuffixAutomaton::Match match = automaton_.longest_earlier();
  if (match.length < kMinMatch) return 0;
  const std::size_t end = begin_ + match.end;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t from = end + i;
    out.push_back(from < tokens.size() ? tokens[from] : out[from - tokens.size()]);
  }
  return match.length;
}

}  // namespace troupe::engine
