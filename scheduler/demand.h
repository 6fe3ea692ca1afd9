// The part of a request that scheduling decisions depend on.
#pragma once

#include <cstdint>
#include <limits>

#include "cache/ids.h"

namespace troupe::scheduler {

using RequestNumber = std::uint64_t;  // the caller's id for a request; unique among those in the queue

inline constexpr std::uint32_t kUnlimitedTokens = std::numeric_limits<std::uint32_t>::max();

struct Demand {
  TenantId tenant{};
  std::int32_t priority = 0;  // lower is earlier
  std::uint64_t arrival = 0;  // unique; kept over preemptions
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = kUnlimitedTokens;  // to generate; kUnlimitedTokens: as many as fit
};

}  // namespace troupe::scheduler
