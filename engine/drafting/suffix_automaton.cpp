#include "engine/drafting/suffix_automaton.h"

#include <utility>

namespace troupe::engine {
namespace {

constexpr std::size_t kFewestEdges = 256;

}  // namespace

void SuffixAutomaton::clear() {
  states_.assign(1, {});
  edges_.clear();
  table_.assign(kFewestEdges, kNone);
  last_ = 0;
  size_ = 0;
}

std::size_t SuffixAutomaton::memory_bytes() const {
  return states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
         table_.capacity() * sizeof(std::uint32_t);
}

// Of its edge, or of the empty place where that would be.
std::size_t SuffixAutomaton::find_slot(std::uint32_t from, TokenId token) const {
  const std::uint64_t key = (std::uint64_t{from} << 32 | static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15ull;
  std::size_t slot = (key >> 32) & (table_.size() - 1);
  while (table_[slot] != kNone && !(edges_[table_[slot]].from == from && edges_[table_[slot]].token == token))
    slot = (slot + 1) & (table_.size() - 1);
  return slot;
}

std::uint32_t SuffixAutomaton::find_edge(std::uint32_t from, TokenId token) const {
  return table_[find_slot(from, token)];
}

void SuffixAutomaton::add_edge(std::uint32_t from, TokenId token, std::uint32_t to) {
  const auto edge = static_cast<std::uint32_t>(edges_.size());
  edges_.push_back({.from = from, .token = token, .to = to, .next = states_[from].first_edge});
  states_[from].first_edge = edge;
  if (2 * edges_.size() <= table_.size()) {
    table_[find_slot(from, token)] = edge;
    return;
  }
  table_.assign(2 * table_.size(), kNone);
  for (std::uint32_t each = 0; each < edges_.size(); ++each)
    table_[find_slot(edges_[each].from, edges_[each].token)] = each;
}

std::uint32_t SuffixAutomaton::add_state(std::uint32_t length) {
  states_.push_back({.length = length});
  return static_cast<std::uint32_t>(states_.size() - 1);
}

void SuffixAutomaton::push(TokenId token) {
  // Of what ended here before, this is the last occurrence from now on.
  std::uint32_t suffix = states_[last_].link;
  for (std::size_t i = 0; i < kMaxHops && suffix != kNone; ++i, suffix = states_[suffix].link)
    states_[suffix].end = static_cast<std::uint32_t>(size_);
  ++size_;
  const std::uint32_t current = add_state(states_[last_].length + 1);
  std::uint32_t state = std::exchange(last_, current);
  while (state != kNone && find_edge(state, token) == kNone) {
    add_edge(state, token, current);
    state = states_[state].link;
  }
  if (state == kNone) {
    states_[current].link = 0;
  } else {
    const std::uint32_t next = edges_[find_edge(state, token)].to;
    if (states_[next].length == states_[state].length + 1) {
      states_[current].link = next;
    } else {
      const std::uint32_t clone = add_state(states_[state].length + 1);
      states_[clone].link = states_[next].link;
      states_[clone].end = states_[next].end;
      // An edge of the copy for each of the original: there are at most three per token in all.
      for (std::uint32_t edge = states_[next].first_edge; edge != kNone; edge = edges_[edge].next)
        add_edge(clone, edges_[edge].token, edges_[edge].to);
      states_[next].link = states_[current].link = clone;
      for (; state != kNone; state = states_[state].link) {
        const std::uint32_t edge = find_edge(state, token);
        if (edge == kNone || edges_[edge].to != next) break;
        edges_[edge].to = clone;
      }
    }
  }
  states_[current].end = static_cast<std::uint32_t>(size_);
}

SuffixAutomaton::Match SuffixAutomaton::longest_earlier() const {
  const std::uint32_t link = states_[last_].link;
  if (link == kNone || states_[link].length == 0) return {};
  return {.length = states_[link].length, .end = states_[link].end};
}

void SuffixAutomaton::read(TokenId token, Place& place) const {
  std::uint32_t edge = find_edge(place.state, token);
  while (edge == kNone && place.state != 0) {
    place.state = states_[place.state].link;
    place.length = states_[place.state].length;
    edge = find_edge(place.state, token);
  }
  if (edge == kNone) return;
  place.state = edges_[edge].to;
  ++place.length;
}

SuffixAutomaton::Match SuffixAutomaton::match(const Place& place) const {
  if (place.length == 0) return {};
  return {.length = place.length, .end = states_[place.state].end};
}

}  // namespace troupe::engine
