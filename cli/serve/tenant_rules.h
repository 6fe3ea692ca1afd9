// Turns the [[tenant]] tables of the configuration into the rules of a server.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/options/options.h"
#include "config/result.h"
#include "ipc/tenant_rules.h"

namespace troupe::cli {

// What a rule allows its tenant.
[[nodiscard]] scheduler::TenantPolicy policy_of(const config::TenantRule& rule);

// Whether rules by cgroup can match a process here; `own_cgroups`: the server's /proc/PID/cgroup. Error: bad_config,
// with file and line.
[[nodiscard]] Status check_cgroup_rules(const config::Given& given, std::string_view own_cgroups);

// Looks the names of users and groups up now. Error: bad_config, with file and line, for an unknown name, two tenants'
// names with one id, two rules for one user, or a cgroup where there are none; io if the lookup fails.
[[nodiscard]] Result<ipc::TenantRules> tenant_rules(const config::Given& given);

// Whether a pool of `num_blocks` has the blocks that `rules`, made from `given`, keep for their tenants. Error:
// bad_config, with file and line.
[[nodiscard]] Status check_kept_blocks(const config::Given& given, const ipc::TenantRules& rules,
                                       std::uint64_t num_blocks);

}  // namespace troupe::cli
