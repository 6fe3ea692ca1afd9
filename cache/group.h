// Cache groups: the layers of a model whose K and V lie in the same blocks.
//
// A group has a pool of blocks, and each sequence has a block table per group. The layers of a group attend to all
// positions, or to the last `window` of them, the token's own included; then a sequence gives back the blocks that lie
// before its window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cache/ids.h"

namespace troupe::cache {

// The most groups of a model, so that counters and step buffers need no allocation.
inline constexpr std::size_t kMaxGroups = 4;

struct Group {
  std::uint32_t num_blocks = 0;
  std::uint32_t window = 0;  // positions; 0: its layers attend to all
};

// The first block that the token at `position` or any later token attends to.
constexpr std::uint32_t first_window_block(std::uint32_t position, std::uint32_t window) {
  return window == 0 || position < window ? 0 : (position - window + 1) / kBlockSize;
}

// Sets the entries of a group's table to kNoBlock that no token from `position` on attends to. Returns whether one was
// not kNoBlock before. The entries before one that is kNoBlock must be so, too. O(1) for each entry that is set.
inline bool leave_window_behind(BlockTable& table, std::uint32_t position, std::uint32_t window) {
  const std::size_t end = std::min<std::size_t>(first_window_block(position, window), table.size());
  std::size_t i = end;
  while (i > 0 && table[i - 1] != kNoBlock) table[--i] = kNoBlock;
  return i < end;
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
