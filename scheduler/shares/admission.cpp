#include "scheduler/shares/admission.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/ids.h"

namespace troupe::scheduler {
namespace {

// The most blocks of a sequence that runs alone: those of the smallest group, not counting groups with blocks enough to
// move their window.
std::uint32_t most_blocks(const Capacity& capacity) {
  std::uint32_t most = kNoBlock;
  for (const cache::Group& group : capacity.groups) {
    const bool window_can_move = group.window > 0 && group.num_blocks >= cache::most_window_blocks(group.window);
    if (!window_can_move) most = std::min(most, group.num_blocks);
  }
  return most;
}

// The most that the demand's tenant may use, and why, for the message.
struct Room {
  std::uint32_t num_blocks;
  std::string why;
};

Room room_of(const TenantLimits& limits, const Capacity& capacity) {
  const std::uint32_t most = most_blocks(capacity), ceiling = limits.max_kv_blocks.value_or(kNoBlock);
  const std::uint32_t pool = capacity.groups[0].num_blocks;
  const std::uint32_t free = pool - std::min(pool, limits.others_min_kv_blocks);
  if (ceiling < std::min(most, free))
    return {ceiling, fmt::format("your limit is {} (max_kv_blocks); ask for less", ceiling)};
  if (free < most)
    return {free, fmt::format("the model has {}, of which {} are kept for other tenants (min_kv_blocks); ask for less",
                              pool, limits.others_min_kv_blocks)};
  return {most, fmt::format("the model has {} in all; ask for less, or serve with a larger --memory", most)};
}

}  // namespace

std::variant<Fits, Refusal> check_fit(const Demand& demand, const Capacity& capacity) {
  if (demand.prompt_tokens == 0) return invalid("prompt", "the prompt is empty; it needs at least one token");
  if (demand.max_tokens == 0) return invalid("max_tokens", "max_tokens is 0; it must be at least 1");

  const std::uint64_t shortest = std::uint64_t{demand.prompt_tokens} + 1;
  if (shortest > capacity.context)
    return Refusal{Outcome::too_long,
                   fmt::format("the prompt has {} tokens, and the context of {} must also hold the answer; shorten the "
                               "prompt to at most {} tokens, or serve with a larger --ctx-size",
                               demand.prompt_tokens, capacity.context, std::max(capacity.context, 1u) - 1),
                   "prompt",
                   capacity.context,
                   {},
                   0,
                   Overflow{demand.prompt_tokens, capacity.context}};
  if (shortest > demand.max_context())
    return Refusal{Outcome::too_long,
                   fmt::format("the prompt has {} tokens, and this tenant's prompts and answers may have {} together "
                               "(max-context); shorten the prompt to at most {} tokens",
                               demand.prompt_tokens, demand.max_context(), std::max(demand.max_context(), 1u) - 1),
                   "max-context",
                   demand.max_context(),
                   {},
                   0,
                   Overflow{demand.prompt_tokens, demand.max_context()}};

  // n blocks hold the K and V of n * kBlockSize tokens, and the last token of a sequence needs none.
  const auto [num_blocks, why] = room_of(demand.limits, capacity);
  const std::uint64_t most_that_fits = std::uint64_t{num_blocks} * kBlockSize + 1;
  const bool is_limited = demand.max_tokens != kUnlimitedTokens;
  const std::uint64_t asked = is_limited ? std::uint64_t{demand.prompt_tokens} + demand.max_tokens : shortest;
  const std::uint32_t context = std::min(capacity.context, demand.max_context());
  const std::uint64_t longest = std::min<std::uint64_t>(asked, context);
  if (longest > most_that_fits)
    return Refusal{Outcome::never_fits,
                   fmt::format("{} prompt tokens and {} to generate need {} KV blocks, and {}", demand.prompt_tokens,
                               longest - demand.prompt_tokens, (longest - 1 + kBlockSize - 1) / kBlockSize, why),
                   shortest > most_that_fits ? "prompt" : "max_tokens",
                   num_blocks,
                   {},
                   0,
                   Overflow{longest, most_that_fits}};

  const std::uint64_t max_known = is_limited ? longest : std::min<std::uint64_t>(context, most_that_fits);
  return Fits{static_cast<std::uint32_t>(std::min<std::uint64_t>(max_known, kUnlimitedTokens))};
}

}  // namespace troupe::scheduler
