// Which blocks a layer reads that sees only the last `window` positions, its own included.
#pragma once

#include <cstdint>

#include "cache/ids.h"

namespace troupe::cache {

// The first block that the token at `position` sees, or any later one. window >= 1.
constexpr std::uint32_t first_window_block(std::uint32_t position, std::uint32_t window) {
  return position < window ? 0 : (position - window + 1) / kBlockSize;
}

// The most blocks that one sequence needs at once, however long it grows: those that its next token sees, and the one
// that it writes to.
constexpr std::uint32_t most_window_blocks(std::uint32_t window) {
  return (window - 1) / kBlockSize + ((window - 1) % kBlockSize != 0) + 1;
}

}  // namespace troupe::cache
