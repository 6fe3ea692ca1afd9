// How long a step with parts of prompts may take: one rule for StepPlanner and for the forecasts of its steps.
#pragma once

#include <cstdint>

#include "cache/ids.h"

namespace troupe::scheduler {

struct StepBound {
  double seconds;              // by CostModel's prediction of the whole step
  std::uint32_t least_tokens;  // of prompts, all parts together, however long these take
};

// Where sequences wait for their next token, `max_stall_seconds` and a block. In a step of prompts alone nothing waits
// yet, but a request that arrives meanwhile does: twice as long, and enough rows for kernels to be as fast as with any
// number (64, 128 and 512 rows are within 4 % for 1.1 B parameters on AVX2). O(1).
inline StepBound step_bound(double max_stall_seconds, bool streams_wait) {
  if (streams_wait) return {max_stall_seconds, kBlockSize};
  return {2 * max_stall_seconds, 2 * kBlockSize};
}

}  // namespace troupe::scheduler
