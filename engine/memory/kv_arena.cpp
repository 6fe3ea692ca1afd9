#include "engine/memory/kv_arena.h"

#include <fmt/format.h>

#include <string>

#include "config/assert.h"

namespace troupe::engine {

Result<std::shared_ptr<KvArena>> KvArena::create(std::uint32_t num_blocks, std::uint64_t bytes_per_block,
                                                 const std::shared_ptr<MemoryPolicy>& policy) {
  std::uint64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(num_blocks, bytes_per_block, &bytes);
  AlignedMemory memory = overflow ? AlignedMemory() : AlignedMemory::allocate(policy, MemoryKind::kv_cache, bytes);
  if (overflow || (bytes != 0 && !memory.data())) {
    return Error{ErrorCode::out_of_memory,
                 fmt::format("no address space for {} KV blocks of {} bytes; use a smaller -c or --memory", num_blocks,
                             bytes_per_block)};
  }
  return std::shared_ptr<KvArena>(new KvArena(std::move(memory), num_blocks, bytes_per_block));
}

std::byte* KvArena::block(BlockId id) {
  TROUPE_ASSERT(id < num_blocks_);
  return memory_.data() + id * bytes_per_block_;
}

}  // namespace troupe::engine
