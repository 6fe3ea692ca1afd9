// Which blocks a sliding-window layer reads: one that attends to the last `window` positions, the token's own included.
#pragma once

#include <cstdint>

#include "cache/ids.h"

namespace troupe::cache {

// The first block that the token at `position` or any later token attends to. window >= 1.
constexpr std::uint32_t first_window_block(std::uint32_t position, std::uint32_t window) {
  return position < window ? 0 : (position - window + 1) / kBlockSize;
}

// The most blocks that a sequence of any length needs at once to compute `chunk` tokens in a step: those that the
// tokens attend to and those that they write. Both arguments >= 1.
constexpr std::uint32_t most_window_blocks(std::uint32_t window, std::uint32_t chunk = 1) {
  // This many consecutive positions, which may begin anywhere in a block.
  const std::uint64_t positions = std::uint64_t{window} - 1 + chunk;
  return static_cast<std::uint32_t>((positions + kBlockSize - 2) / kBlockSize + 1);
}

// The longest chunk that num_blocks blocks suffice for; 0: not even one token.
constexpr std::uint32_t longest_window_chunk(std::uint32_t window, std::uint32_t num_blocks) {
  if (num_blocks < most_window_blocks(window)) return 0;
  return static_cast<std::uint32_t>((std::uint64_t{num_blocks} - 1) * kBlockSize + 2 - window);
}

}  // namespace troupe::cache
