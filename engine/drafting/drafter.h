// Proposes how a sequence may continue, from its own tokens: what followed the last time that its end occurred before.
//
// A proposal costs nothing if it is wrong but the rows that verify it (StepItem::draft): drafters are never asked
// whether they are right. Plain: no thread, no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "engine/drafting/suffix_automaton.h"

namespace troupe::engine {

// Not thread-safe.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Indexes those of `tokens`, all known ones of the sequence, that earlier calls did not have: at most `room`, which
  // becomes what is left of it. The tokens of earlier calls must be the same. Returns whether all are indexed now. O(1)
  // amortised per token, about a microsecond.
  virtual bool extend(std::span<const TokenId> tokens, std::size_t& room) = 0;
  // Sets `out` to at most `most` tokens that may follow `tokens`, which were indexed by extend(). Returns how many of
  // the last tokens occurred before in the same order; 0: there is no occurrence to go by, and nothing is proposed.
  // O(most + kMaxMatch).
  virtual std::size_t propose(std::span<const TokenId> tokens, std::size_t most, std::vector<TokenId>& out) const = 0;
  [[nodiscard]] virtual std::size_t memory_bytes() const = 0;
};

// The most recent one of the longest matches: the last kLength tokens are looked up in a table, and among the last
// kMaxCandidates occurrences the one wins that agrees with most tokens before them, of at most kMaxMatch. Takes at most
// 16 bytes a token.
class NgramDrafter final : public Drafter {
 public:
  static constexpr std::size_t kLength = 3;
  static constexpr std::size_t kMaxCandidates = 8;
  static constexpr std::size_t kMaxMatch = 32;
  static constexpr std::size_t kMaxHops = 64;  // candidates, and others with the same hash

  bool extend(std::span<const TokenId> tokens, std::size_t& room) override;
  std::size_t propose(std::span<const TokenId> tokens, std::size_t most, std::vector<TokenId>& out) const override;
  [[nodiscard]] std::size_t memory_bytes() const override {
    return (heads_.capacity() + previous_.capacity()) * sizeof(std::uint32_t);
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  [[nodiscard]] std::size_t slot_of(std::span<const TokenId> tokens, std::size_t end) const;
  void grow(std::span<const TokenId> tokens, std::size_t num_ends);

  // Ends are positions after the last token of an occurrence.
  std::vector<std::uint32_t> heads_;     // by hash of kLength tokens: the last end; a power of two
  std::vector<std::uint32_t> previous_;  // by end: the end before it with the same slot
  std::size_t num_indexed_ = 0;          // tokens
};

// By a suffix automaton (suffix_automaton.h): the longest suffix that occurred before, of any length from kMinMatch on.
// When it has max_tokens it begins again with the last half of them.
class SuffixDrafter final : public Drafter {
 public:
  static constexpr std::size_t kMinMatch = 2;
  static constexpr std::size_t kMaxTokens = 32'768;

  // max_tokens: 2 to kMaxTokens.
  explicit SuffixDrafter(std::size_t max_tokens = kMaxTokens) : max_tokens_(max_tokens) {}

  bool extend(std::span<const TokenId> tokens, std::size_t& room) override;
  std::size_t propose(std::span<const TokenId> tokens, std::size_t most, std::vector<TokenId>& out) const override;
  [[nodiscard]] std::size_t memory_bytes() const override { return automaton_.memory_bytes(); }
  // Tokens of the longest suffix with an earlier occurrence among the indexed tokens; for tests.
  [[nodiscard]] std::size_t match_length() const { return automaton_.longest_earlier().length; }

 private:
  [[nodiscard]] std::size_t num_indexed() const { return begin_ + automaton_.size(); }

  std::size_t max_tokens_;
  SuffixAutomaton automaton_;
  std::size_t begin_ = 0;  // the first token that it knows
};

}  // namespace troupe::engine
