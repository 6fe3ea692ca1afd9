// Divides the memory beside the weights into KV blocks, snapshots and live states.
#pragma once

#include <cstdint>
#include <vector>

#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

struct CachePlan {
  std::vector<std::uint32_t> num_blocks;  // by group
  std::uint32_t num_snapshots = 0;
  std::uint32_t num_states = 0;  // one per open sequence; 0: the model has no recurrent state
};

// `left`: bytes beside the weights. At least one sequence of the whole context fits, else the error (out_of_memory)
// names the context that would. Numbers given in `options` are used as they are, or the same error. Plans at most
// max_sequences whole contexts. Live states get at most a quarter of the memory, snapshots at most a quarter of the
// rest, or half if there are no K and V.
[[nodiscard]] Result<CachePlan> plan_cache(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options,
                                           std::uint64_t left);

// The most blocks of a group that one sequence needs, during a long prefill chunk.
[[nodiscard]] std::uint32_t blocks_needed(const CacheGroup& group, std::uint32_t context);

}  // namespace troupe::engine
