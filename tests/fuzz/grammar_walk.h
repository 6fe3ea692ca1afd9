// A text of a grammar, chosen by bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/assert.h"
#include "engine/constraints/grammar/machine.h"

namespace troupe::engine::constraints {

inline constexpr std::size_t kMaxWalkedBytes = 400;

// Each byte is the one that a choice names, or the next one that can follow; behind them is the shortest end.
inline std::string walked(Machine& machine, std::string_view choices) {
  StateId state = machine.begin();
  std::string text;
  for (const char choice : choices.substr(0, kMaxWalkedBytes)) {
    StateId next = kStuck;
    for (unsigned step = 0; step < 256 && next == kStuck; ++step) {
      const auto byte = static_cast<std::uint8_t>(static_cast<std::uint8_t>(choice) + step);
      next = machine.next(state, byte);
      if (next != kStuck) text += static_cast<char>(byte);
    }
    if (next == kStuck) break;
    TROUPE_ASSERT(machine.shortest(next) + 1 >= machine.shortest(state));
    state = next;
  }
  return text + machine.shortest_text(state);
}

}  // namespace troupe::engine::constraints
