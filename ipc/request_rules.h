// What frames and HTTP check alike of a request before the gateway gets it, once it is complete. The gateway checks
// what needs the model.
#pragma once

#include <cstdint>
#include <optional>

#include "actors/requests/request.h"
#include "scheduler/outcome.h"

namespace troupe::ipc {

// Credit per choice is capped at this: far above every context, far below what overflows when grants are added up.
inline constexpr std::uint64_t kMaxCredit = 1ull << 32;

// Refuses a request outside the bounds (actors::check_shape()) or more urgent than its tenant may be. Else gives it
// what its tenant's policy decides: the priority, and the cache scope where it names none. O(ids of the prompt).
//   request           its tenant is set
//   max_prompt_bytes  of the prompt, or of all inputs of an Embed; an id counts 4
// A refusal's field has the name of the frames' protocol; HTTP says it in its own words (api::parse_call()).
[[nodiscard]] std::optional<scheduler::Refusal> apply_rules(actors::Request& request, std::uint64_t max_prompt_bytes);

}  // namespace troupe::ipc
