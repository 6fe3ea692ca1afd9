// At which positions a model with recurrent state saves a snapshot of a sequence's state in the cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/ids.h"

namespace troupe::cache {

// A snapshot is worth its memory where later requests will resume: at the last block boundary that leaves a token of
// the prompt to compute (the same prompt again, or a conversation's next message), and every `every` positions (prompts
// that differ from this one earlier, and sequences that are preempted).
//
// `num_prompt` is the number of tokens known when the sequence began; after a preemption that includes the answer so
// far.
struct SnapshotRule {
  std::uint32_t every = 0;    // positions, a multiple of kBlockSize; 0: no snapshots, the model has no recurrent state
  bool at_prompt_end = true;  // false: multiples of `every` only

  // The first boundary after `position`. There is always one.
  [[nodiscard]] constexpr std::uint32_t next_after(std::uint32_t position, std::uint32_t num_prompt) const {
    const std::uint32_t multiple = (position / every + 1) * every;
    const std::uint32_t end = prompt_end(num_prompt);
    return end > position ? std::min(end, multiple) : multiple;
  }
  // The last boundary at or before `position`; 0 if there is none.
  [[nodiscard]] constexpr std::uint32_t last_up_to(std::uint32_t position, std::uint32_t num_prompt) const {
    const std::uint32_t multiple = position / every * every;
    const std::uint32_t end = prompt_end(num_prompt);
    return end <= position ? std::max(end, multiple) : multiple;
  }

 private:
  [[nodiscard]] constexpr std::uint32_t prompt_end(std::uint32_t num_prompt) const {
    return at_prompt_end ? (num_prompt - 1) / kBlockSize * kBlockSize : 0;
  }
};

}  // namespace troupe::cache
