// What a request asks for, and whether it can be served at all.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cache/group.h"
#include "cache/ids.h"
#include "scheduler/outcome.h"
#include "scheduler/shares/tenant.h"

namespace troupe::scheduler {

using RequestNumber = std::uint64_t;  // the caller's id for a request; unique among those in the queue

inline constexpr std::uint32_t kUnlimitedTokens = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t kUnlimitedSequences = std::numeric_limits<std::uint32_t>::max();

// The part of a request that scheduling decisions depend on.
struct Demand {
  TenantId tenant{};
  std::int32_t priority = 0;  // lower is earlier
  std::uint64_t arrival = 0;  // unique; kept over preemptions
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = kUnlimitedTokens;  // to generate; kUnlimitedTokens: as many as fit
  std::uint32_t generated = 0;                  // tokens, before it was preempted
  TenantLimits limits{};
  // With a deadline: when it has to begin at the latest, on the clock of the batch.
  std::optional<double> due_seconds{};

  [[nodiscard]] std::uint32_t max_context() const { return limits.max_context.value_or(kUnlimitedTokens); }
  [[nodiscard]] std::uint32_t max_running() const { return limits.max_running.value_or(kUnlimitedSequences); }
};

// The most that one sequence can use.
struct Capacity {
  std::uint32_t context = 0;         // longest sequence in tokens
  std::vector<cache::Group> groups;  // at least one; their blocks are those of all sequences together
};

// The request fits, and ends with Outcome::length at max_known tokens (prompt included) at the latest.
struct Fits {
  std::uint32_t max_known = 0;
};

// Checks whether a request fits when no other sequence of its tenant runs, and those of others use no more than what is
// kept for their tenants. The last token of a sequence is never computed, so max_known tokens need
// blocks_for(max_known - 1) blocks of each group, of one with a window at most most_window_blocks().
//
//   too_long    the prompt and one token are more than the context, or than the tenant's max_context
//   never_fits  the prompt, or the prompt and an explicit max_tokens, need more blocks than there are, less those kept
//               for other tenants, or than the tenant may have; a request without max_tokens is instead cut to what
//               fits
//   invalid_argument  an empty prompt, or max_tokens 0
[[nodiscard]] std::variant<Fits, Refusal> check_fit(const Demand& demand, const Capacity& capacity);

}  // namespace troupe::scheduler
