#include "engine/constraints/grammar/machine.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "config/assert.h"

namespace troupe::engine::constraints {

Machine::Machine(Grammar grammar) : grammar_(std::move(grammar)) {
  pool().limit_work(kMaxReadingWork);
  frames_.push_back({kNoFrame, 0, 0});
  states_.emplace_back();  // kStuck
  enter(kNoFrame, grammar_.begin_of(grammar_.root()));
  begin_ = state_of_found();
  TROUPE_ASSERT(begin_ != kStuck);
}

Machine::FrameId Machine::frame_of(FrameId outer, NodeId back_to) {
  const std::uint64_t key = std::uint64_t{outer} << 32 | back_to;
  const auto [found, is_new] = frame_ids_.try_emplace(key, static_cast<FrameId>(frames_.size()));
  if (is_new) {
    const std::uint64_t sum = std::uint64_t{frames_[outer].shortest} + grammar_.node(back_to).shortest;
    frames_.push_back({outer, back_to, static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, UINT32_MAX - 1))});
  }
  return found->second;
}

// Adds the places that are reached from a node without reading anything.
void Machine::enter(FrameId frame, NodeId node) {
  std::vector<std::pair<FrameId, NodeId>> left{{frame, node}};
  while (!left.empty()) {
    std::tie(frame, node) = left.back();
    left.pop_back();
    if (!entered_.insert(std::uint64_t{frame} << 32 | node).second) continue;
    if (entered_.size() > kMaxPlaces)
      throw ConstraintLimit("it can be read in more than " + std::to_string(kMaxPlaces) +
                            " ways at once: allow fewer alternatives");
    const Grammar::Node& at = grammar_.node(node);
    if (at.is_end) {
      if (frame == kNoFrame)
        found_end_ = true;
      else
        left.emplace_back(frames_[frame].outer, frames_[frame].back_to);
    }
    for (const Grammar::Edge& edge : at.edges) {
      switch (edge.kind) {
        case Grammar::Edge::Kind::text:
          found_.push_back({frame, edge.target, edge.what});
          if (grammar_.pool().accepts_empty(edge.what)) left.emplace_back(frame, edge.target);
          break;
        case Grammar::Edge::Kind::nothing:
          left.emplace_back(frame, edge.target);
          break;
        case Grammar::Edge::Kind::call: {
          // A call that ends its rule needs no way back.
          const Grammar::Node& behind = grammar_.node(edge.target);
          const bool is_last = behind.is_end && behind.edges.empty();
          left.emplace_back(is_last ? frame : frame_of(frame, edge.target), grammar_.begin_of(edge.what));
          break;
        }
      }
    }
  }
}

StateId Machine::state_of_found() {
  std::sort(found_.begin(), found_.end());
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  StateId result = kStuck;
  if (!found_.empty() || found_end_) {
    std::uint64_t hash = found_end_;
    for (const Place& each : found_)
      for (const std::uint64_t part : {each.frame, each.target, each.text})
        hash = (hash ^ (part + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2))) * 0xD6E8FEB86659FD93u;
    const auto [begin, end] = state_ids_.equal_range(hash);
    for (auto at = begin; at != end && result == kStuck; ++at) {
      const State& each = states_[at->second];
      if (each.may_end == found_end_ && each.num_places == found_.size() &&
          std::equal(found_.begin(), found_.end(), places_.begin() + each.first_place))
        result = at->second;
    }
    if (result == kStuck) {
      if (bytes_used() > kMaxMachineBytes)
        throw ConstraintLimit("reading it takes more than " + std::to_string(kMaxMachineBytes >> 20) +
                              " MiB: make the schema or grammar simpler, or the answer shorter");
      pool().count_work();
      result = static_cast<StateId>(states_.size());
      states_.emplace_back();
      states_.back().first_place = static_cast<std::uint32_t>(places_.size());
      states_.back().num_places = static_cast<std::uint32_t>(found_.size());
      states_.back().may_end = found_end_;
      places_.insert(places_.end(), found_.begin(), found_.end());
      state_ids_.emplace(hash, result);
    }
  }
  found_.clear();
  entered_.clear();
  found_end_ = false;
  return result;
}

void Machine::prepare_targets(State& state) {
  if (state.num_places == 1) {
    const RegexId text = places_[state.first_place].text;
    state.classes = pool().classes(text);
    state.targets.assign(pool().num_classes(text), kUnknown);
  } else {
    // Bytes that no place tells apart.
    std::string division(256, '\0');
    std::size_t num_classes = 1;
    for (std::size_t at = 0; at < state.num_places; ++at) {
      const std::uint8_t* const classes = pool().classes(places_[state.first_place + at].text);
      if (pool().num_classes(places_[state.first_place + at].text) == 1) continue;
      std::unordered_map<std::uint32_t, std::uint8_t> numbers;
      std::uint32_t last_key = UINT32_MAX;
      std::uint8_t last = 0;
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const std::uint32_t key = std::uint32_t{static_cast<std::uint8_t>(division[byte])} * 256 + classes[byte];
        if (key != last_key) {
          last = numbers.try_emplace(key, static_cast<std::uint8_t>(numbers.size())).first->second;
          last_key = key;
        }
        division[byte] = static_cast<char>(last);
      }
      num_classes = numbers.size();
    }
    state.classes = reinterpret_cast<const std::uint8_t*>(divisions_.insert(std::move(division)).first->data());
    state.targets.assign(num_classes, kUnknown);
  }
  target_bytes_ += state.targets.size() * sizeof(StateId);
}

StateId Machine::first_next(StateId id, std::uint8_t byte) {
  if (id == kStuck || states_[id].num_places == 0) return kStuck;
  if (states_[id].targets.empty()) prepare_targets(states_[id]);
  // What a call that met a limit has left.
  found_.clear();
  entered_.clear();
  found_end_ = false;
  const std::size_t first = states_[id].first_place, count = states_[id].num_places;
  for (std::size_t at = 0; at < count; ++at) {
    const Place place = places_[first + at];
    const RegexId text = pool().next(place.text, byte);
    if (text == kNoText) continue;
    if (text != kEmptyText) found_.push_back({place.frame, place.target, text});
    if (pool().accepts_empty(text)) enter(place.frame, place.target);
  }
  const StateId target = state_of_found();
  State& from = states_[id];
  from.targets[from.classes[byte]] = target;
  return target;
}

StateId Machine::after(StateId state, std::string_view text) {
  for (const char each : text) {
    if (state == kStuck) break;
    state = next(state, static_cast<std::uint8_t>(each));
  }
  return state;
}

std::uint32_t Machine::shortest(StateId id) {
  TROUPE_ASSERT(id != kStuck);
  if (states_[id].shortest != UINT32_MAX) return states_[id].shortest;
  std::uint64_t shortest = states_[id].may_end ? 0 : UINT32_MAX - 1;
  for (std::size_t at = 0; at < states_[id].num_places; ++at) {
    const Place& place = places_[states_[id].first_place + at];
    shortest = std::min(shortest, std::uint64_t{pool().shortest(place.text)} + grammar_.node(place.target).shortest +
                                      frames_[place.frame].shortest);
  }
  return states_[id].shortest = static_cast<std::uint32_t>(shortest);
}

// The byte of a state that is no end.
std::uint8_t Machine::shortest_byte(StateId state) {
  if (states_[state].shortest_byte >= 0) return static_cast<std::uint8_t>(states_[state].shortest_byte);
  const std::uint32_t left = shortest(state);
  unsigned byte = 0;
  for (; byte < 256; ++byte)
    if (const StateId target = next(state, static_cast<std::uint8_t>(byte));
        target != kStuck && shortest(target) == left - 1)
      break;
  TROUPE_ASSERT(byte < 256);
  states_[state].shortest_byte = static_cast<std::int16_t>(byte);
  return static_cast<std::uint8_t>(byte);
}

std::string Machine::shortest_text(StateId state, std::size_t most) {
  std::string text;
  while (text.size() < most && shortest(state) > 0) {
    const std::uint8_t byte = shortest_byte(state);
    text += static_cast<char>(byte);
    state = next(state, byte);
  }
  return text;
}

std::size_t Machine::bytes_used() const {
  return grammar_.bytes_used() + frames_.size() * (sizeof(Frame) + 40) + places_.size() * sizeof(Place) +
         states_.size() * (sizeof(State) + 48) + target_bytes_ + divisions_.size() * 320;
}

}  // namespace troupe::engine::constraints
