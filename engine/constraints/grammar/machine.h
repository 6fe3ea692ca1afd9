// Reads texts of a grammar, byte by byte.
//
// A state is every way in which the grammar can have read a text: a set of places, each with the stack of rules that it
// is in and what is left of the expression that it reads. States are made while they are used and kept by number, so
// that a transition that was taken before is a look-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/constraints/grammar/grammar.h"

namespace troupe::engine::constraints {

using StateId = std::uint32_t;

inline constexpr StateId kStuck = 0;  // the state of texts that nothing can complete

inline constexpr std::size_t kMaxPlaces = 20'000;            // of one state
inline constexpr std::size_t kMaxMachineBytes = 256u << 20;  // of one machine, its grammar's expressions included

// Not thread-safe. States are numbers of one machine, valid as long as it lives; the same text always leads to the same
// state. next() and what is built on it throw ConstraintLimit.
class Machine {
 public:
  // Of a grammar that is finished and has a text (asserted).
  explicit Machine(Grammar grammar);

  StateId begin() const { return begin_; }
  // The state after one more byte; kStuck if no text of the grammar goes on so. O(1) once known.
  [[nodiscard]] StateId next(StateId state, std::uint8_t byte) {
    const State& from = states_[state];
    const StateId target = from.targets.empty() ? kUnknown : from.targets[from.classes[byte]];
    return target != kUnknown ? target : first_next(state, byte);
  }
  [[nodiscard]] StateId after(StateId state, std::string_view text);
  // Whether what was read is a whole text of the grammar.
  bool may_end(StateId state) const { return states_[state].may_end; }

  // Bytes of a shortest text that ends the grammar from here. `state` must not be kStuck.
  [[nodiscard]] std::uint32_t shortest(StateId state);
  // The lowest of the shortest texts, at most so many bytes of it; what it leaves after a part of it was read is the
  // same for the state then.
  [[nodiscard]] std::string shortest_text(StateId state, std::size_t most = SIZE_MAX);

  // Calls visit(expression, bytes of a shortest text from the end of the expression to the end of the grammar) for each
  // place of a state. O(places)
  template <class Visit>
  void visit_places(StateId state, Visit visit) const {
    const State& each = states_[state];
    for (std::size_t at = 0; at < each.num_places; ++at) {
      const Place& place = places_[each.first_place + at];
      visit(place.text, std::uint64_t{grammar_.node(place.target).shortest} + frames_[place.frame].shortest);
    }
  }
  std::size_t num_places(StateId state) const { return states_[state].num_places; }
  RegexPool& pool() { return grammar_.pool(); }

  std::size_t num_states() const { return states_.size(); }
  std::size_t bytes_used() const;

 private:
  static constexpr StateId kUnknown = UINT32_MAX;
  using FrameId = std::uint32_t;
  static constexpr FrameId kNoFrame = 0;

  struct Frame {
    FrameId outer;
    NodeId back_to;          // where the rule that was called returns to
    std::uint32_t shortest;  // bytes from there to the end of the grammar
  };
  struct Place {
    FrameId frame;
    NodeId target;  // the node behind the expression
    RegexId text;   // what is left of it
    auto operator<=>(const Place&) const = default;
  };
  struct State {
    std::uint32_t first_place = 0, num_places = 0;
    std::uint32_t shortest = UINT32_MAX;
    std::int16_t shortest_byte = -1;  // its first byte; not known: -1
    bool may_end = false;
    const std::uint8_t* classes = nullptr;
    std::vector<StateId> targets;  // of each class; empty: none known yet
  };

  StateId first_next(StateId state, std::uint8_t byte);
  std::uint8_t shortest_byte(StateId state);
  void prepare_targets(State& state);
  FrameId frame_of(FrameId outer, NodeId back_to);
  void enter(FrameId frame, NodeId node);  // collects into found_
  StateId state_of_found();

  Grammar grammar_;
  std::vector<Frame> frames_;
  std::unordered_map<std::uint64_t, FrameId> frame_ids_;
  std::vector<Place> places_;
  std::vector<State> states_;
  std::unordered_multimap<std::uint64_t, StateId> state_ids_;
  std::unordered_set<std::string> divisions_;
  std::size_t target_bytes_ = 0;
  StateId begin_ = kStuck;

  // While one state is made.
  std::vector<Place> found_;
  bool found_end_ = false;
  std::unordered_set<std::uint64_t> entered_;
};

}  // namespace troupe::engine::constraints
