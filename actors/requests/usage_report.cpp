#include "actors/requests/usage_report.h"

#include <limits>

namespace troupe::actors {

UsageTenant usage_tenant(const scheduler::Tenant& tenant) {
  const auto id = static_cast<std::uint64_t>(tenant.id);
  if (id <= std::numeric_limits<std::uint32_t>::max()) return {.uid = static_cast<std::uint32_t>(id), .name = {}};
  return {.uid = {}, .name = tenant.policy ? tenant.policy->name : std::string()};
}

UsageCounts& UsageCounts::operator+=(const UsageCounts& other) {
  for_each_count([&](const char*, auto count) { this->*count += other.*count; });
  return *this;
}

UsageCounts counts_of(const UsageEntry& entry) {
  UsageCounts counts;
  counts.cpu_seconds = entry.usage.cpu_seconds;
  counts.block_seconds = entry.usage.block_seconds;
  if (!entry.outcome) return counts;
  const scheduler::OutcomeKind kind = scheduler::info(*entry.outcome).kind;
  const bool cut = counts_as_cancelled(*entry.outcome);
  counts.done = kind == scheduler::OutcomeKind::done && !cut ? 1 : 0;
  counts.cancelled = cut ? 1 : 0;
  counts.refused = kind == scheduler::OutcomeKind::refused ? 1 : 0;
  counts.failed = kind == scheduler::OutcomeKind::failed ? 1 : 0;
  if (!entry.has_begun) return counts;
  if (entry.kind == WorkKind::embed) {
    counts.embed_tokens = entry.usage.prompt_tokens;
  } else {
    counts.prompt_tokens = entry.usage.prompt_tokens;
    counts.cached_tokens = entry.usage.cached_tokens;
    counts.answer_tokens = entry.usage.completion_tokens;
  }
  return counts;
}

}  // namespace troupe::actors
