// Which priority a request gets of those that its tenant may ask for.
#pragma once

#include <cstdint>
#include <variant>

#include "scheduler/shares/admission.h"
#include "scheduler/shares/tenant.h"

namespace troupe::scheduler {

inline constexpr std::int32_t kMaxPriority = 1000;  // priorities are from -1000 to 1000, lower is earlier

// The priority that a request gets, or the refusal. The owner and root may ask for any. Other tenants may ask for
// TenantPolicy::most_urgent_priority (0 without a policy) and above: a lower number is raised to that if it is at least
// 0, and refused if it is below 0.
[[nodiscard]] std::variant<std::int32_t, Refusal> priority_for(std::int32_t asked, const Tenant& tenant);

}  // namespace troupe::scheduler
