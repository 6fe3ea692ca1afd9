// The KV blocks of one model as numbers: which are free, and how many references hold each of the others.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/ids.h"

namespace troupe::cache {

// Knows ids only; the memory is the arena's. Not thread-safe. Every call is O(1) and allocates nothing.
class BlockPool {
 public:
  explicit BlockPool(std::uint32_t num_blocks);
  // Asserts that every block came back.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block with one reference; there must be a free one (asserted). The last one returned goes out first: its
  // memory is the likeliest to be in a cache, and a pool that is never full touches few pages.
  [[nodiscard]] BlockId allocate();
  // One more reference to a block that has some (asserted).
  void retain(BlockId block);
  // One reference less; the last one frees the block.
  void release(BlockId block);

  [[nodiscard]] std::uint32_t references(BlockId block) const;
  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(references_.size()); }
  [[nodiscard]] std::uint32_t num_free() const { return static_cast<std::uint32_t>(free_.size()); }

 private:
  std::vector<std::uint32_t> references_;  // by id; 0: free
  std::vector<BlockId> free_;              // a stack
};

}  // namespace troupe::cache
