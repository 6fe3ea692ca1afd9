#include "engine/constraints/token_filter.h"

#include <algorithm>
#include <array>

#include "config/assert.h"

namespace troupe::engine::constraints {

TokenFilter::TokenFilter(Machine& machine, std::shared_ptr<const TokenTrie> trie)
    : machine_(&machine), trie_(std::move(trie)), depths_(machine.pool()), path_(trie_->max_token_bytes() + 1) {}

// covered: tokens with at most so many characters are allowed already.
void TokenFilter::walk(const std::vector<TokenTrie::Node>& nodes, StateId state, std::uint8_t covered,
                       std::size_t tokens_left, TokenMask& mask) {
  path_[0] = state;
  for (std::size_t at = 0; at < nodes.size();) {
    const TokenTrie::Node& node = nodes[at];
    if (covered != 0 && node.max_characters <= covered) {
      at = node.behind;
      continue;
    }
    const StateId next = machine_->next(path_[node.depth - 1], node.byte);
    if (next == kStuck) {
      at = node.behind;
      continue;
    }
    if (node.token != TokenTrie::Node::kNoToken && fits(next, tokens_left)) mask.allow(node.token);
    path_[node.depth] = next;
    ++at;
  }
}

// Whether the shortest end can be written with the tokens that are left behind one that leads to a state.
bool TokenFilter::fits(StateId state, std::size_t tokens_left) {
  const std::uint32_t rest = machine_->shortest(state);
  bound_ = std::max<std::uint64_t>(bound_, rest);
  // A text has no more tokens than bytes.
  if (tokens_left == kNoLimit || rest < tokens_left || tokens_to_end(state) < tokens_left) return true;
  is_limited_ = true;
  return false;
}

// Of a state with one place, where `text` is left: texts of the kind that lead, if they are of one length, to one
// state.
TokenFilter::Decided TokenFilter::decide_by_length(StateId state, RegexId text, TextKind kind, std::size_t tokens_left,
                                                   TokenMask& mask) {
  std::uint8_t first = 0;  // of the lengths that fit, one after the other, up to the last; 0: that did not fit
  const auto allow_to = [&](std::uint8_t last) {
    if (first > 1)
      mask.allow_difference(trie_->all_of(kind, last), trie_->all_of(kind, static_cast<std::uint8_t>(first - 1)));
    else if (first == 1)
      mask.allow_all_of(trie_->all_of(kind, last));
    first = 0;
  };
  for (std::uint8_t length = 1; length <= kMaxTextDepth; ++length) {
    const auto before = static_cast<std::uint8_t>(length - 1);
    const std::optional<RegexId> next = depths_.after_any(text, kind);
    if (!next || *next == kNoText) {
      allow_to(before);
      return {before, next.has_value()};
    }
    const bool is_loop = *next == text;
    if (!is_loop) state = machine_->next(state, 'a');  // a character of every kind
    const bool does_fit = fits(state, tokens_left);
    if (does_fit && first == 0) first = length;
    if (is_loop) {
      allow_to(does_fit ? kEveryDepth : before);
      return {kEveryDepth, true};
    }
    if (!does_fit) allow_to(before);
    text = *next;
  }
  allow_to(kMaxTextDepth);
  return {kMaxTextDepth, false};
}

void TokenFilter::fill(StateId state, TokenMask& mask, std::size_t tokens_left) {
  TROUPE_ASSERT(mask.size() == trie_->num_tokens());
  for (const Kept& kept : kept_)
    if (kept.state == state && tokens_left > kept.bound) {
      mask = kept.mask;
      return;
    }
  fill_anew(state, mask, tokens_left);
  if (is_limited_ || tokens_left == 0) return;
  kept_[next_kept_] = {state, bound_, mask};
  next_kept_ = (next_kept_ + 1) % kKeptMasks;
}

void TokenFilter::fill_anew(StateId state, TokenMask& mask, std::size_t tokens_left) {
  mask.clear();
  bound_ = 0;
  is_limited_ = false;
  if (tokens_left == 0) return;
  std::array<std::uint8_t, kNumTextKinds> covered{};
  std::array<bool, kNumTextKinds> is_done{};
  std::uint8_t best = 0;
  for (std::size_t kind = kNumTextKinds; kind-- > 0;) {
    TextDepth depth{0, true, 0};
    std::optional<RegexId> limited;  // what a place leaves, where not all that it takes fits
    machine_->visit_places(state, [&](RegexId text, std::uint64_t rest) {
      if (depth.depth == kEveryDepth) return;
      const TextDepth each = depths_.of(text, static_cast<TextKind>(kind));
      depth.is_exact = depth.is_exact && each.is_exact;
      if (tokens_left == kNoLimit || each.shortest + rest < tokens_left) {
        depth.depth = std::max(depth.depth, each.depth);
        bound_ = std::max(bound_, each.shortest + rest);
      } else if (each.depth > depth.depth) {
        depth.is_exact = false;
        limited = text;
      }
    });
    if (limited && machine_->num_places(state) == 1) {
      const Decided decided = decide_by_length(state, *limited, static_cast<TextKind>(kind), tokens_left, mask);
      depth.depth = decided.depth;
      depth.is_exact = decided.is_exact;
      best = std::max(best, decided.depth);
    }
    covered[kind] = depth.depth;
    if (depth.depth > best) {
      mask.allow_all_of(trie_->all_of(static_cast<TextKind>(kind), depth.depth));
      best = depth.depth;
    }
    if (depth.depth == kEveryDepth || depth.is_exact) {
      // What holds of a kind holds of those in it.
      std::fill(is_done.begin(), is_done.begin() + static_cast<std::ptrdiff_t>(kind) + 1, true);
      break;
    }
  }
  for (std::size_t kind = 0; kind < kNumTextKinds; ++kind)
    if (!is_done[kind]) walk(trie_->tokens_of(static_cast<TextKind>(kind)), state, covered[kind], tokens_left, mask);
  walk(trie_->other_tokens(), state, 0, tokens_left, mask);
  for (const auto& [first, second] : trie_->doubles())
    if (mask.allows(first)) mask.allow(second);
}

// One more than behind the longest token that the shortest text begins with: that leaves the shortest text of the state
// behind it.
std::size_t TokenFilter::tokens_to_end(StateId state) {
  way_.clear();
  std::uint32_t count = 0;
  for (; machine_->shortest(state) > 0; way_.push_back(state), state = machine_->after(state, first_token_)) {
    if (state < to_end_.size() && to_end_[state] != 0) {
      count = to_end_[state];
      break;
    }
    first_token_ = machine_->shortest_text(state, trie_->max_token_bytes());
    first_token_.resize(std::max<std::size_t>(1, trie_->longest_of(first_token_).second));
  }
  if (to_end_.size() < machine_->num_states()) to_end_.resize(machine_->num_states());
  for (; !way_.empty(); way_.pop_back()) to_end_[way_.back()] = ++count;
  return count;
}

std::size_t TokenFilter::bytes_used() const {
  std::size_t bytes = to_end_.capacity() * sizeof(std::uint32_t) + path_.capacity() * sizeof(StateId);
  for (const Kept& kept : kept_) bytes += kept.mask.words().size_bytes();
  return bytes;
}

}  // namespace troupe::engine::constraints
