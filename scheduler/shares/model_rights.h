// Which models a tenant may use, and whether it may have one loaded.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "scheduler/shares/tenant.h"

namespace troupe::scheduler {

// Whether a pattern of TenantPolicy::models names it: '*' stands for any characters, none of them too; all others for
// themselves. O(pattern.size() * name.size()).
[[nodiscard]] bool matches_model(std::string_view pattern, std::string_view name);

// Whether the tenant may use the model with this name and these aliases: if its rule has no `models`, or if one of them
// names it. Root and the server's user may use all.
[[nodiscard]] bool may_use(const Tenant& tenant, std::span<const std::string> names);
[[nodiscard]] bool may_use(const Tenant& tenant, const std::string& name, std::span<const std::string> aliases);

// Whether that is so of every model.
[[nodiscard]] bool may_use_all(const Tenant& tenant);

// Where the tenant's rule says nothing, the server's user and the members of its group have turns (MayLoad::turns), and
// others load into idle memory. The server's user always has turns.
[[nodiscard]] MayLoad may_load(const Tenant& tenant);

}  // namespace troupe::scheduler
