#include "cache/block_pool.h"

#include <limits>

#include "config/assert.h"

namespace troupe::cache {

BlockPool::BlockPool(std::uint32_t num_blocks) : references_(num_blocks, 0) {
  TROUPE_ASSERT(num_blocks < kNoBlock);
  free_.reserve(num_blocks);
  for (BlockId block = num_blocks; block-- > 0;) free_.push_back(block);
}

BlockPool::~BlockPool() { TROUPE_ASSERT(num_free() == num_blocks()); }

BlockId BlockPool::allocate() {
  TROUPE_ASSERT(!free_.empty());
  const BlockId block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void BlockPool::retain(BlockId block) {
  TROUPE_ASSERT(references(block) > 0);
  TROUPE_ASSERT(references_[block] < std::numeric_limits<std::uint32_t>::max());
  ++references_[block];
}

void BlockPool::release(BlockId block) {
  TROUPE_ASSERT(references(block) > 0);
  if (--references_[block] == 0) free_.push_back(block);
}

std::uint32_t BlockPool::references(BlockId block) const {
  TROUPE_ASSERT(block < references_.size());
  return references_[block];
}

}  // namespace troupe::cache
