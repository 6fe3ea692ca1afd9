// The order in which keys are checked that the server has not seen yet. Plain logic, without thread or clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/keys/secrets.h"

namespace troupe::ipc {

inline constexpr std::size_t kMaxWaitingKeys = 64;     // with an id that a key has, about 10 ms each
inline constexpr std::size_t kMaxWaitingGuesses = 16;  // with any other id

struct KeyCheck {
  std::string peer{};   // guessing_peer()
  std::string id{};     // as it was sent
  bool has_id = false;  // a key has this id; else it cannot be right
  std::string secret{};
  Salt salt{};
  Hash hash{};
  Hash digest{};
};

// Keys with an id that a key has, and others, wait in two lines that take turns while both have some. In a line the
// pairs of an id and a peer take turns (of others the peers, as their ids are made up), each with those that it sent in
// their order. A pair that comes waits for two checks of each that is there at most, however many come after it:
// scheduler::TurnList lets users that are new go before those that have been served, and a network has new addresses
// without end.
//
// A full line takes nothing from those that have little in it: of the id that has most waiting in it, and of its peers
// of the one that has most, the newest loses its place.
//
// Not thread-safe. O(kMaxWaitingKeys^2).
class CheckLine {
 public:
  // Returns the check that has lost its place, which may be this one.
  [[nodiscard]] std::optional<KeyCheck> push(KeyCheck check);
  [[nodiscard]] std::optional<KeyCheck> pop();
  [[nodiscard]] bool empty() const { return lines_[0].waiting.empty() && lines_[1].waiting.empty(); }

 private:
  struct Waiting {
    KeyCheck check;
    std::uint64_t round;
  };
  struct Line {
    std::vector<Waiting> waiting;  // in the order in which they came
    std::uint64_t round = 0;       // of the last one that was popped
  };

  std::array<Line, 2> lines_;  // by has_id
  bool last_had_id_ = false;
};

}  // namespace troupe::ipc
