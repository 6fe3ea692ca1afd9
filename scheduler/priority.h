// Which priority a request gets of those that its tenant may ask for.
#pragma once

#include <cstdint>
#include <variant>

#include "scheduler/admission.h"
#include "scheduler/tenant.h"

namespace troupe::scheduler {

inline constexpr std::int32_t kMaxPriority = 1000;  // priorities are from -1000 to 1000, lower is earlier

// The priority that a request gets, or the refusal. A tenant's rule says how urgent its requests may be, without one 0;
// the owner and root may have any. What is more urgent is raised to that, but a request for less than 0 asks for a
// right, and is refused without it.
[[nodiscard]] std::variant<std::int32_t, Refusal> priority_for(std::int32_t asked, const Tenant& tenant);

}  // namespace troupe::scheduler
