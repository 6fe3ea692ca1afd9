// Which blocks a layer reads that sees only the last `window` positions, its own included.
#pragma once

#include <cstdint>

#include "cache/ids.h"

namespace troupe::cache {

// The first block that the token at `position` sees, or any later one. window >= 1.
constexpr std::uint32_t first_window_block(std::uint32_t position, std::uint32_t window) {
  return position < window ? 0 : (position - window + 1) / kBlockSize;
}

// The most blocks that one sequence needs at once to compute `chunk` tokens in a step, however long it grows: those
// that the tokens see, and those that they write to. Both >= 1.
constexpr std::uint32_t most_window_blocks(std::uint32_t window, std::uint32_t chunk = 1) {
  // So many positions in a row, beginning anywhere in a block.
  const std::uint64_t positions = std::uint64_t{window} - 1 + chunk;
  return static_cast<std::uint32_t>((positions + kBlockSize - 2) / kBlockSize + 1);
}

// The most tokens of a step for which so many blocks suffice; 0: not even for one.
constexpr std::uint32_t longest_window_chunk(std::uint32_t window, std::uint32_t num_blocks) {
  if (num_blocks < most_window_blocks(window)) return 0;
  return static_cast<std::uint32_t>((std::uint64_t{num_blocks} - 1) * kBlockSize + 2 - window);
}

}  // namespace troupe::cache
