// How many blocks, snapshots and live states a model gets of the memory that its weights leave.
#pragma once

#include <cstdint>

#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

struct CachePlan {
  std::uint32_t num_blocks = 0;
  std::uint32_t num_window_blocks = 0;
  std::uint32_t num_snapshots = 0;
  std::uint32_t num_states = 0;  // of sequences that are open at once; 0: there is no recurrent state
};

// `left`: bytes beside the weights. One sequence of the whole context fits, or there is an error (out_of_memory) that
// says which context would. What options ask for by number is given, or the same error. At most what max_sequences
// whole contexts need; a quarter of the memory for snapshots, or half where nothing else grows.
[[nodiscard]] Result<CachePlan> plan_cache(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options,
                                           std::uint64_t left);

// Window blocks that one sequence needs at most, a long chunk of it under way.
[[nodiscard]] std::uint32_t window_blocks_needed(std::uint32_t window, std::uint32_t context);

}  // namespace troupe::engine
