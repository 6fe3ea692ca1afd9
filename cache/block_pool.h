// The KV blocks of one model as ids: which are free, and the reference count of each of the others.
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

  // Returns a block with one reference; there must be a free one (asserted). Last in, first out: the memory of the
  // block freed last is the likeliest to be in a CPU cache, and a pool that is never full touches few pages.
  [[nodiscard]] BlockId allocate();
  // Adds a reference to a block that is not free (asserted).
  void retain(BlockId block);
  // Removes a reference; the block is free when none is left.
  void release(BlockId block);

  [[nodiscard]] std::uint32_t references(BlockId block) const;
  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(references_.size()); }
  [[nodiscard]] std::uint32_t num_free() const { return static_cast<std::uint32_t>(free_.size()); }

 private:
  std::vector<std::uint32_t> references_;  // by id; 0: free
  std::vector<BlockId> free_;              // a stack
};

}  // namespace troupe::cache
