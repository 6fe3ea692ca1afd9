// The tokens that may follow in a state of a machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/constraints/grammar/machine.h"
#include "engine/constraints/token_trie.h"

namespace troupe::engine::constraints {

// Not thread-safe; for one machine.
class TokenFilter {
 public:
  TokenFilter(Machine& machine, std::shared_ptr<const TokenTrie> trie);

  // Sets `mask` (of the trie's size) to the tokens whose bytes can follow and after which the shortest end can be
  // written with `tokens_left` - 1 more tokens. It is never empty as long as tokens_to_end(state) <= tokens_left, a
  // token with which the shortest end begins being one of them. Tokens that are no text (ends of an answer) are never
  // in it: Machine::may_end() says whether they may follow. Throws ConstraintLimit.
  //
  // Texts of a kind that the state takes whatever they are (TextDepths) are allowed all at once, so that within a free
  // string only tokens with quotes, escapes or parts of characters are tried.
  static constexpr std::size_t kNoLimit = SIZE_MAX;
  void fill(StateId state, TokenMask& mask, std::size_t tokens_left = kNoLimit);

  // Tokens that the shortest end takes, written with the longest tokens that fit. O(tokens that are not known yet)
  [[nodiscard]] std::size_t tokens_to_end(StateId state);
  // Of memory, beside the trie and the machine.
  [[nodiscard]] std::size_t bytes_used() const;

 private:
  // A mask that no limit of tokens has made smaller, and does not as long as more tokens than `bound` are left.
  struct Kept {
    StateId state = kStuck;
    std::uint64_t bound = 0;
    TokenMask mask{};
  };
  // Texts within a string mostly lead back to its state, and lists to that of their next item.
  static constexpr std::size_t kKeptMasks = 8;

  void fill_anew(StateId state, TokenMask& mask, std::size_t tokens_left);
  // Texts of a kind of which the tokens are allowed that may be.
  struct Decided {
    std::uint8_t depth = 0;  // with at most so many characters; or kEveryDepth
    bool is_exact = false;   // longer ones cannot follow
  };
  Decided decide_by_length(StateId state, RegexId text, TextKind kind, std::size_t tokens_left, TokenMask& mask);
  bool fits(StateId state, std::size_t tokens_left);
  void walk(const std::vector<TokenTrie::Node>& nodes, StateId state, std::uint8_t covered, std::size_t tokens_left,
            TokenMask& mask);

  Machine* machine_;
  std::shared_ptr<const TokenTrie> trie_;
  TextDepths depths_;
  std::array<Kept, kKeptMasks> kept_{};
  std::size_t next_kept_ = 0;
  // Of the mask that is being filled: bytes to the end behind its tokens, at most; whether the limit left some out.
  std::uint64_t bound_ = 0;
  bool is_limited_ = false;
  std::vector<StateId> path_;          // the state at each depth of a walk
  std::vector<std::uint32_t> to_end_;  // tokens_to_end() of each state; 0: not known, or none
  // Of tokens_to_end(): the states before those whose number is known, and the token that leads from the last of them.
  std::vector<StateId> way_;
  std::string first_token_;
};

}  // namespace troupe::engine::constraints
