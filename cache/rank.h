// The one total order over requests, used by leases, the step planner and the request queue.
#pragma once

#include <compare>
#include <cstdint>

namespace troupe::cache {

// Lower is earlier ("older"). Arrival numbers are unique, so no two requests are equal, and a request
// keeps its rank when it is preempted and replayed.
struct Rank {
  std::int32_t priority = 0;
  std::uint64_t arrival = 0;
  // clang-tidy 14 takes the 0 of a rewritten comparison for a null pointer.
  friend auto operator<=>(const Rank&, const Rank&) = default;  // NOLINT(modernize-use-nullptr)
};

}  // namespace troupe::cache
