#include "ipc/request_rules.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "actors/requests/request_shape.h"
#include "scheduler/shares/priority.h"

namespace troupe::ipc {

using scheduler::Refusal;

std::optional<Refusal> apply_rules(actors::Request& request, std::uint64_t max_prompt_bytes) {
  if (auto refusal = actors::check_shape(request, max_prompt_bytes)) return refusal;
  if (request.embed) return std::nullopt;
  auto priority = scheduler::priority_for(request.priority, request.tenant);
  if (auto* const refused = std::get_if<Refusal>(&priority)) return std::move(*refused);
  request.priority = std::get<std::int32_t>(priority);
  const auto& policy = request.tenant.policy;
  if (request.cache_scope.empty() && policy && policy->public_cache) request.cache_scope = "public";
  request.credit = std::min(request.credit, kMaxCredit);
  return std::nullopt;
}

}  // namespace troupe::ipc
