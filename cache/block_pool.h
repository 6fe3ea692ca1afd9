// The KV blocks of one model as ids: which are free, and the reference count and the tenant of each of the others.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cache/block_accounts.h"
#include "cache/ids.h"
#include "config/assert.h"

namespace troupe::cache {

// Knows ids only; the memory is the arena's. Not thread-safe. Every call is O(1), but for the cost of its accounts'.
class BlockPool {
 public:
  explicit BlockPool(std::uint32_t num_blocks) : references_(num_blocks, 0), accounts_(num_blocks) {
    TROUPE_ASSERT(num_blocks < kNoBlock);
    free_.reserve(num_blocks);
    for (BlockId block = num_blocks; block-- > 0;) free_.push_back(block);
  }
  // Asserts that every block came back.
  ~BlockPool() { TROUPE_ASSERT(num_free() == num_blocks()); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns a block with one reference, that of a sequence of `owner`; there must be a free block (asserted). Last in,
  // first out: the memory of the block freed last is the likeliest to be in a CPU cache, and a pool that is never full
  // touches few pages.
  [[nodiscard]] BlockId allocate(const Owner& owner = {}) {
    TROUPE_ASSERT(!free_.empty());
    const BlockId block = free_.back();
    free_.pop_back();
    references_[block] = 1;
    accounts_.add(block, owner);
    return block;
  }
  // Adds a reference to a block that is not free (asserted).
  void retain(BlockId block) {
    TROUPE_ASSERT(references(block) > 0);
    TROUPE_ASSERT(references_[block] < std::numeric_limits<std::uint32_t>::max());
    ++references_[block];
  }
  // Removes a reference; the block is free when none is left.
  void release(BlockId block) {
    TROUPE_ASSERT(references(block) > 0);
    if (--references_[block] > 0) return;
    free_.push_back(block);
    accounts_.remove(block);
  }

  // The callers that add and remove references tell the accounts when a cached block is used and left.
  [[nodiscard]] BlockAccounts& accounts() { return accounts_; }
  [[nodiscard]] const BlockAccounts& accounts() const { return accounts_; }

  [[nodiscard]] std::uint32_t references(BlockId block) const {
    TROUPE_ASSERT(block < references_.size());
    return references_[block];
  }
  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(references_.size()); }
  [[nodiscard]] std::uint32_t num_free() const { return static_cast<std::uint32_t>(free_.size()); }

 private:
  std::vector<std::uint32_t> references_;  // by id; 0: free
  std::vector<BlockId> free_;              // a stack
  BlockAccounts accounts_;
};

}  // namespace troupe::cache
