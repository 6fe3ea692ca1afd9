// What a request asks for, whether it can be served at all, and whether its tenant may have one more live request.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cache/group.h"
#include "cache/ids.h"
#include "scheduler/outcome.h"
#include "scheduler/tenant.h"

namespace troupe::scheduler {

using RequestNumber = std::uint64_t;  // the caller's id for a request; unique among those in the queue

inline constexpr std::uint32_t kUnlimitedTokens = std::numeric_limits<std::uint32_t>::max();

// The part of a request that scheduling decisions depend on.
struct Demand {
  TenantId tenant{};
  std::int32_t priority = 0;  // lower is earlier
  std::uint64_t arrival = 0;  // unique; kept over preemptions
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = kUnlimitedTokens;  // to generate; kUnlimitedTokens: as many as fit
  std::uint32_t generated = 0;                  // tokens, before it was preempted
  TenantLimits limits{};
};

// For messages: "user 1000".
[[nodiscard]] std::string name_of(TenantId tenant);

// Why a request is refused: the content of the wire's Refused.
struct Refusal {
  Outcome outcome = Outcome::internal;
  std::string message;                 // one line for the user, with the numbers and what to do
  std::string field;                   // the request's field that would have to change, or the limit's name
  std::optional<std::uint64_t> limit;  // the limit that was met
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
//   too_long    the prompt and one token are more than the context
//   never_fits  the prompt, or the prompt and an explicit max_tokens, need more blocks than there are, less those kept
//   for
//               other tenants, or than the tenant may have; a request without max_tokens is instead cut to what fits
//   invalid_argument  an empty prompt, or max_tokens 0
[[nodiscard]] std::variant<Fits, Refusal> check_fit(const Demand& demand, const Capacity& capacity);

// Live requests per tenant, from arrival to end. Not thread-safe.
class Quota {
 public:
  explicit Quota(std::uint32_t max_requests_per_tenant) : max_requests_(max_requests_per_tenant) {}

  // Counts one more, or returns the refusal (Outcome::quota).
  [[nodiscard]] std::optional<Refusal> take(TenantId tenant);
  // A request that was taken (asserted) has ended.
  void give_back(TenantId tenant);
  [[nodiscard]] std::uint32_t held(TenantId tenant) const;

 private:
  std::uint32_t max_requests_;
  std::unordered_map<TenantId, std::uint32_t> held_;  // only tenants with at least one
};

}  // namespace troupe::scheduler
