// The part of a request that scheduling decisions depend on.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "cache/rank.h"

namespace troupe::scheduler {

using RequestNumber = std::uint64_t;  // the caller's id for a request; unique among those in the queue

inline constexpr std::uint32_t kUnlimitedTokens = std::numeric_limits<std::uint32_t>::max();

struct Demand {
  std::uint32_t uid = 0;                     // the tenant
  cache::Rank rank;                          // priority (lower is earlier) and arrival; kept over preemptions
  std::optional<std::uint64_t> deadline_ms;  // on the caller's clock, any origin
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = kUnlimitedTokens;  // to generate; kUnlimitedTokens: as many as fit
};

}  // namespace troupe::scheduler
