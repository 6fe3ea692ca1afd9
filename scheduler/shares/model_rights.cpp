#include "scheduler/shares/model_rights.h"

#include <algorithm>

namespace troupe::scheduler {

bool matches_model(std::string_view pattern, std::string_view name) {
  // The last '*' takes one character more whenever what is behind it does not fit.
  std::size_t in_pattern = 0, in_name = 0, behind_star = std::string_view::npos, taken = 0;
  while (in_name < name.size()) {
    if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
      behind_star = ++in_pattern;
      taken = in_name;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == name[in_name]) {
      ++in_pattern;
      ++in_name;
    } else if (behind_star != std::string_view::npos) {
      in_pattern = behind_star;
      in_name = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', in_pattern) == std::string_view::npos;
}

bool may_use_all(const Tenant& tenant) { return tenant.is_owner || !tenant.policy || tenant.policy->models.empty(); }

bool may_use(const Tenant& tenant, std::span<const std::string> names) {
  if (may_use_all(tenant)) return true;
  return std::ranges::any_of(tenant.policy->models, [&](const std::string& pattern) {
    return std::ranges::any_of(names, [&](const std::string& name) { return matches_model(pattern, name); });
  });
}

bool may_use(const Tenant& tenant, const std::string& name, std::span<const std::string> aliases) {
  return may_use(tenant, {&name, 1}) || may_use(tenant, aliases);
}

MayLoad may_load(const Tenant& tenant) {
  if (tenant.is_owner) return MayLoad::turns;
  if (tenant.policy && tenant.policy->may_load) return *tenant.policy->may_load;
  return tenant.in_owner_group ? MayLoad::turns : MayLoad::idle;
}

}  // namespace troupe::scheduler
