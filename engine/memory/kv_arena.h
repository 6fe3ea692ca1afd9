// The memory of the KV cache's blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/memory/aligned_memory.h"
#include "engine/memory/memory_policy.h"

namespace troupe::engine {

// The memory of all KV blocks of a model. Block `id` holds, layer by layer, K then V in the layout that
// kernels/kernels.h describes. Outlives every actor; only the compute thread calls block().
class KvArena {
 public:
  // Takes num_blocks x bytes_per_block from `policy` in one piece; blocks are touched on first use.
  static Result<std::shared_ptr<KvArena>> create(std::uint32_t num_blocks, std::uint64_t bytes_per_block,
                                                 const std::shared_ptr<MemoryPolicy>& policy = system_memory());
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  std::uint32_t num_blocks() const { return num_blocks_; }
  std::uint64_t bytes_per_block() const { return bytes_per_block_; }
  std::byte* block(BlockId id);  // id < num_blocks (asserted); null if blocks have no bytes
  // Bytes of the blocks written so far; the others take address space only. Any thread.
  std::size_t resident_bytes() const { return memory_.resident_bytes(); }

 private:
  KvArena(AlignedMemory memory, std::uint32_t num_blocks, std::uint64_t bytes_per_block)
      : memory_(std::move(memory)), num_blocks_(num_blocks), bytes_per_block_(bytes_per_block) {}
  AlignedMemory memory_;
  std::uint32_t num_blocks_;
  std::uint64_t bytes_per_block_;
};

}  // namespace troupe::engine
