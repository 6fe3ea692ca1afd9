// The suffix automaton of a text (Blumer et al., "The smallest automaton recognizing the subwords of a text", 1985):
// where the longest end of some tokens occurred in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"

namespace troupe::engine {

// Not thread-safe. About 150 bytes a token.
class SuffixAutomaton {
 public:
  SuffixAutomaton() { clear(); }

  void clear();
  // Appends a token to the text. O(1) amortised.
  void push(TokenId token);
  [[nodiscard]] std::size_t size() const { return size_; }  // tokens of the text

  struct Match {
    std::size_t length = 0;  // tokens; 0: none
    std::size_t end = 0;     // the position after one of its occurrences, mostly the last one
  };
  // The longest end of the text that also occurs earlier in it. O(1).
  [[nodiscard]] Match longest_earlier() const;
  // How many of the last tokens read occur together in the text. push() and clear() make it invalid.
  struct Place {
    std::uint32_t state = 0;
    std::size_t length = 0;
  };
  // Reads one token more of another text. O(1) amortised.
  void read(TokenId token, Place& place) const;
  // The longest end of what was read that occurs in this text. O(1).
  [[nodiscard]] Match match(const Place& place) const;

  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::size_t kMaxHops = 16;  // states whose last occurrence one token brings up to date
  struct State {
    std::uint32_t length = 0;  // of its longest string
    std::uint32_t link = kNone;
    std::uint32_t first_edge = kNone;
    std::uint32_t end = 0;  // a position after an occurrence; of the last ones, as far as kMaxHops reaches
  };
  struct Edge {
    std::uint32_t from = kNone;
    TokenId token = 0;
    std::uint32_t to = 0;
    std::uint32_t next = kNone;  // of the same state
  };

  [[nodiscard]] std::uint32_t add_state(std::uint32_t length);
  [[nodiscard]] std::size_t find_slot(std::uint32_t from, TokenId token) const;
  [[nodiscard]] std::uint32_t find_edge(std::uint32_t from, TokenId token) const;  // kNone: there is none
  void add_edge(std::uint32_t from, TokenId token, std::uint32_t to);

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> table_;  // of edges by (from, token): open addressing, a power of two, at most half full
  std::uint32_t last_ = 0;
  std::size_t size_ = 0;
};

}  // namespace troupe::engine
