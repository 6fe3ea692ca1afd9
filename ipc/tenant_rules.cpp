#include "ipc/tenant_rules.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <set>

namespace troupe::ipc {
namespace {

bool lists(const std::vector<std::uint32_t>& ids, std::uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Whether `path` is the cgroup `top` or below it.
bool is_within(std::string_view path, std::string_view top) {
  while (top.ends_with('/')) top.remove_suffix(1);
  return path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/');
}

bool matches(const TenantRule& rule, const PeerFacts& peer) {
  if (!peer.has_uid) return rule.is_tcp;
  return rule.is_default || lists(rule.uids, peer.uid) ||
         std::any_of(peer.gids.begin(), peer.gids.end(), [&](std::uint32_t gid) { return lists(rule.gids, gid); }) ||
         (!rule.cgroup.empty() && !peer.cgroup.empty() && is_within(peer.cgroup, rule.cgroup));
}

std::shared_ptr<const scheduler::TenantPolicy> with_kept_for_others(scheduler::TenantPolicy policy,
                                                                    std::uint64_t kept) {
  const std::uint64_t others = kept - policy.limits.min_kv_blocks.value_or(0);
  policy.limits.others_min_kv_blocks =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(others, std::numeric_limits<std::uint32_t>::max()));
  return std::make_shared<const scheduler::TenantPolicy>(std::move(policy));
}

}  // namespace

std::uint64_t kept_blocks(const TenantRule& rule) {
  const bool is_one_tenant = !rule.policy->name.empty();
  const std::size_t num_tenants = is_one_tenant ? 1 : std::set(rule.uids.begin(), rule.uids.end()).size();
  return std::uint64_t{rule.policy->limits.min_kv_blocks.value_or(0)} * num_tenants;
}

TenantRules::TenantRules(std::vector<TenantRule> rules) : rules_(std::move(rules)) {
  const std::uint64_t kept =
      std::accumulate(rules_.begin(), rules_.end(), std::uint64_t{0},
                      [](std::uint64_t sum, const TenantRule& rule) { return sum + kept_blocks(rule); });
  kept_ = kept;
  if (kept == 0) return;
  for (TenantRule& rule : rules_) rule.policy = with_kept_for_others(*rule.policy, kept);
  otherwise_ = with_kept_for_others({}, kept);
}

TenantRules::Match TenantRules::resolve(const PeerFacts& peer) const {
  const auto rule = std::find_if(rules_.begin(), rules_.end(), [&](const auto& each) { return matches(each, peer); });
  if (rule == rules_.end()) return {{.id = TenantId{peer.uid}, .policy = otherwise_}};
  const std::string& name = rule->policy->name;
  const TenantId id = name.empty() ? TenantId{peer.uid} : scheduler::named_tenant(name);
  return {{.id = id, .policy = rule->policy}, rule->trusted_proxy};
}

std::optional<scheduler::Tenant> TenantRules::find(std::string_view label) const {
  if (const auto uid = uid_of_label(label)) return resolve({.uid = *uid}).tenant;
  for (const TenantRule& rule : rules_)
    if (!label.empty() && rule.policy->name == label)
      return scheduler::Tenant{.id = scheduler::named_tenant(label), .policy = rule.policy};
  return std::nullopt;
}

scheduler::Tenant TenantRules::apart(scheduler::TenantPolicy policy) const {
  const TenantId id = scheduler::named_tenant(policy.name);
  return {.id = id, .policy = with_kept_for_others(std::move(policy), kept_)};
}

bool TenantRules::need_cgroup() const {
  return std::any_of(rules_.begin(), rules_.end(), [](const TenantRule& rule) { return !rule.cgroup.empty(); });
}

bool TenantRules::name_tcp() const {
  return std::any_of(rules_.begin(), rules_.end(), [](const TenantRule& rule) { return rule.is_tcp; });
}

std::optional<std::uint32_t> uid_of_label(std::string_view label) {
  std::uint32_t uid = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), uid);
  if (error != std::errc() || end != label.data() + label.size() || uid == std::numeric_limits<std::uint32_t>::max())
    return std::nullopt;
  return uid;
}

}  // namespace troupe::ipc
