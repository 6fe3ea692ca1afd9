// A tenant: the user, group or service that work is counted for, and what the server's rules allow it. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/block_accounts.h"
#include "cache/ids.h"

namespace troupe::scheduler {

// Limits of one tenant, beside those of the server. No value: none.
struct TenantLimits {
  std::optional<std::uint32_t> max_running{};  // sequences in the batch
  std::optional<std::uint32_t> max_queued{};   // requests that have arrived and do not run yet; each choice counts
  std::optional<std::uint64_t> max_prompt_tokens_per_minute{};
  std::optional<std::uint64_t> max_answer_tokens_per_minute{};
  std::optional<std::uint32_t> min_kv_blocks{};  // kept for the tenant; others may use them until it needs them
  std::optional<std::uint32_t> max_kv_blocks{};
  std::uint32_t others_min_kv_blocks = 0;      // the sum of min_kv_blocks of all other tenants
  std::optional<std::uint32_t> max_context{};  // tokens of one sequence
  std::optional<std::uint32_t> max_choices{};  // answers to one request

  friend bool operator==(const TenantLimits&, const TenantLimits&) = default;
};

// Whether a tenant's request may have a model loaded that is not in memory (models/residency.h).
enum class MayLoad : std::uint8_t {
  never,  // it uses what is loaded
  idle,   // if there is room, or by putting out models that no other tenant has used within their keep-alive
  turns,  // by having turns with the models of others, too
};

// Immutable. A reload of the rules makes new ones; requests keep those that they arrived with.
struct TenantPolicy {
  std::string name{};                         // for people and metrics; empty: "user UID"
  double weight = 1;                          // its share of the computing beside other tenants; above 0
  std::int32_t most_urgent_priority = -1000;  // lower numbers, which are more urgent, are raised to this
  bool public_cache = false;                  // requests that name no cache scope share prefixes with all tenants
  TenantLimits limits{};
  std::optional<std::uint32_t> predict{};  // tokens of an answer where its request says nothing; absent: the model's
  std::vector<std::string> models{};       // that it may use, by names or patterns (model_rights.h); empty: all
  std::optional<MayLoad> may_load{};       // absent: as model_rights.h says
};

struct Tenant {
  TenantId id{};
  bool is_owner = false;                         // the server's own user, or root
  bool in_owner_group = false;                   // a user that the kernel named, in the group that the server runs as
  std::shared_ptr<const TenantPolicy> policy{};  // null: the default one, without limits

  [[nodiscard]] double weight() const { return policy ? policy->weight : 1; }
  [[nodiscard]] TenantLimits limits() const { return policy ? policy->limits : TenantLimits{}; }
};

// The id of the tenant that rules give this name: above all uids, and the same in every run. Two names may have one id,
// so a caller with several names has to check. FNV-1a (Fowler, Noll, Vo), folded to 32 bits, and not XXH3 as elsewhere:
// the folders of the sessions on disk are named by it. O(name.size()).
[[nodiscard]] constexpr TenantId named_tenant(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return TenantId{(std::uint64_t{1} << 32) | ((hash >> 32) ^ (hash & 0xffffffffu))};
}

// The tenant as an operator writes it: its name, or the uid in digits.
[[nodiscard]] inline std::string label_of(const Tenant& tenant) {
  if (tenant.policy && !tenant.policy->name.empty()) return tenant.policy->name;
  return std::to_string(static_cast<std::uint32_t>(tenant.id));
}

// For messages: "tenant web", "user 1000".
[[nodiscard]] inline std::string name_of(const Tenant& tenant) {
  return (tenant.policy && !tenant.policy->name.empty() ? "tenant " : "user ") + label_of(tenant);
}

// For its leases.
[[nodiscard]] inline cache::Owner owner_of(TenantId tenant, const TenantLimits& limits) {
  return {
      .tenant = tenant, .floor = limits.min_kv_blocks.value_or(0), .ceiling = limits.max_kv_blocks.value_or(kNoBlock)};
}

}  // namespace troupe::scheduler
