#include "scheduler/shares/priority.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::scheduler {

std::variant<std::int32_t, Refusal> priority_for(std::int32_t asked, const Tenant& tenant) {
  if (asked < -kMaxPriority || asked > kMaxPriority)
    return Refusal{.outcome = Outcome::invalid_argument,
                   .message = fmt::format("priority is {}; it may be from -1000 to 1000", asked),
                   .field = "priority",
                   .limit = kMaxPriority};
  if (tenant.is_owner) return asked;
  const std::int32_t least = tenant.policy ? tenant.policy->most_urgent_priority : 0;
  if (asked >= 0 || asked >= least) return std::max(asked, least);
  return Refusal{.outcome = Outcome::permission,
                 .message = fmt::format(
                     "priority is {}; below 0 only the server's own user, root and tenants with a rule for it may ask "
                     "for, {} may from {} to 1000",
                     asked, name_of(tenant), least),
                 .field = "priority",
                 .limit = std::nullopt};
}

}  // namespace troupe::scheduler
