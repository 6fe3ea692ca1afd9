// Regular expressions over bytes, with intersection and complement, and the automata that their derivatives are.
//
// An expression is an id; equal expressions have one id, so that a derivative is a state of a DFA that is made while it
// is used (J. Brzozowski, "Derivatives of Regular Expressions", 1964; S. Owens, J. Reppy, A. Turon, "Regular-expression
// derivatives re-examined", 2009). Nothing is ever expanded to a whole automaton: a repetition of 10,000 costs states
// only where a text goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/constraints/expressions/byte_set.h"

namespace troupe::engine::constraints {

using RegexId = std::uint32_t;

inline constexpr RegexId kNoText = 0;     // matches no text
inline constexpr RegexId kEmptyText = 1;  // matches the empty text alone
inline constexpr RegexId kAnyText = 2;    // matches every text

inline constexpr std::uint32_t kUnbounded = UINT32_MAX;

// Of one pool: expressions and derivatives. About 200 bytes each.
inline constexpr std::size_t kMaxExpressions = 1'000'000;
// Expressions that are derived, a few microseconds each, while a grammar is made.
inline constexpr std::size_t kMaxMakingWork = 40'000;
// And while a machine reads, where nothing else is said (limit_work()), as answers do for each of their masks.
inline constexpr std::size_t kMaxReadingWork = 400'000;

// Thrown by whatever makes expressions when a pool is full, and by what compiles a grammar when another limit is
// reached. Public entry points turn it into an Error.
class ConstraintLimit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A deterministic automaton that is given whole, for what expressions say badly (multiples of a number).
struct DigitTable {
  std::vector<std::array<std::uint32_t, 256>> next;  // of each state by byte; kNoState: no text
  std::vector<bool> accepts;                         // of each state
  static constexpr std::uint32_t kNoState = UINT32_MAX;
  static constexpr std::size_t kBytesPerState = 1200;  // of a pool's memory, at least: the table and an expression
};

// Not thread-safe: next() and shortest() make states.
class RegexPool {
 public:
  RegexPool();
  ~RegexPool();
  RegexPool(const RegexPool&) = delete;
  RegexPool& operator=(const RegexPool&) = delete;
  // The same expressions under the same ids, and what is known of their shortest texts; no derivatives, and all of
  // kMaxMakingWork. Another thread may copy the same pool at once. O(size())
  [[nodiscard]] std::unique_ptr<RegexPool> copy() const;

  [[nodiscard]] RegexId bytes(const ByteSet& set);  // one byte of the set
  [[nodiscard]] RegexId literal(std::string_view text);
  [[nodiscard]] RegexId concat(RegexId first, RegexId second);
  [[nodiscard]] RegexId concat(std::span<const RegexId> parts);
  [[nodiscard]] RegexId either(std::vector<RegexId> branches);  // none: kNoText
  [[nodiscard]] RegexId both(std::vector<RegexId> conditions);  // none: kAnyText
  [[nodiscard]] RegexId complement(RegexId id);                 // every text that `id` does not match
  // At least `min` and at most `max` (kUnbounded: any number) of `id` one after another.
  [[nodiscard]] RegexId repeat(RegexId id, std::uint32_t min, std::uint32_t max);
  [[nodiscard]] RegexId optional(RegexId id) { return repeat(id, 0, 1); }
  [[nodiscard]] RegexId table(DigitTable table);  // from its state 0

  // Whether the empty text matches. O(1).
  bool accepts_empty(RegexId id) const;
  // What remains to be matched after `byte`: kNoText if no text goes on so. O(1) once known.
  [[nodiscard]] RegexId next(RegexId id, std::uint8_t byte) {
    const State& state = states_[id];
    if (state.targets == nullptr) return first_next(id, byte);
    return state.targets[state.classes[byte]];
  }
  // next() over all bytes of a text.
  [[nodiscard]] RegexId after(RegexId id, std::string_view text);
  bool matches(RegexId id, std::string_view text) { return accepts_empty(after(id, text)); }

  // The classes of bytes that next() does not tell apart: 256 numbers from 0, each class having the same target. The
  // same pointer for the same division.
  const std::uint8_t* classes(RegexId id);
  std::size_t num_classes(RegexId id);

  // Bytes of a shortest text that matches; kNoLength if there is none. Exact, by search over states where intersections
  // or complements are part of it.
  static constexpr std::uint32_t kNoLength = UINT32_MAX;
  [[nodiscard]] std::uint32_t shortest(RegexId id);
  // Of the shortest texts the one with the lowest bytes. The expression must match something (asserted).
  [[nodiscard]] std::string shortest_text(RegexId id);

  // From here on at most so many more expressions are derived; then ConstraintLimit is thrown. At first
  // kMaxMakingWork.
  void limit_work(std::size_t derivations);
  std::size_t work_left() const;
  // One of them is used up, by what is made of expressions.
  void count_work();

  // From here on the pool may have at most so many bytes (bytes_used()); then ConstraintLimit is thrown, and nothing is
  // made. At first without a limit.
  void limit_bytes(std::size_t most);
  // Throws where so many more do not fit: before a table is made that has them.
  void check_room(std::size_t bytes) const;

  // Expressions so far.
  std::size_t size() const { return states_.size(); }
  // Estimated bytes of memory.
  std::size_t bytes_used() const;

 private:
  struct State {
    const std::uint8_t* classes = nullptr;
    const RegexId* targets = nullptr;  // of each class; null: not computed yet
  };
  RegexId first_next(RegexId id, std::uint8_t byte);

  struct Impl;
  std::vector<State> states_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::engine::constraints
