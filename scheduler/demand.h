// What a request asks of the machine, as far as scheduling cares.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "cache/rank.h"

namespace troupe::scheduler {

using RequestNumber = std::uint64_t;  // the caller's name for a request; unique among those in the queue

inline constexpr std::uint32_t kUnlimitedTokens = std::numeric_limits<std::uint32_t>::max();

struct Demand {
  std::uint32_t uid = 0;                     // the tenant
  cache::Rank rank;                          // priority (lower is earlier) and arrival; kept over preemptions
  std::optional<std::uint64_t> deadline_ms;  // on the caller's clock, whatever its zero
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = kUnlimitedTokens;  // to generate; kUnlimitedTokens: as many as fit
};

}  // namespace troupe::scheduler
