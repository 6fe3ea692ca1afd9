#include "cli/serve/tenant_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cli/terminal/accounts.h"
#include "config/options/values.h"
#include "ipc/sockets/peer_facts.h"

namespace troupe::cli {
namespace {

using AccountFinder = Result<std::optional<std::uint32_t>> (*)(const std::string&);

Error bad_rule(const config::Given& given, const config::TenantRule& rule, const std::string& why) {
  return {ErrorCode::bad_config, fmt::format("{}:{}: {}", given.file, rule.line, why)};
}

template <class T>
std::optional<T> limit_of(const std::optional<std::int64_t>& value) {
  return value ? std::optional<T>(static_cast<T>(*value)) : std::nullopt;
}

// Adds the ids of these names to `ids`. `kind`: "user" or "group".
Status add_ids(const config::Given& given, const config::TenantRule& rule, const char* kind, AccountFinder find,
               const std::vector<std::string>& names, std::vector<std::uint32_t>& ids) {
  for (const std::string& name : names) {
    const auto id = find(name);
    if (!id) return Error{id.error().code, bad_rule(given, rule, id.error().message).message};
    if (!*id) return bad_rule(given, rule, fmt::format("this system has no {} '{}'", kind, name));
    ids.push_back(**id);
  }
  return Ok{};
}

std::optional<scheduler::MayLoad> may_load_of(std::string_view word) {
  if (word.empty()) return std::nullopt;
  const auto found = std::ranges::find(config::kMayLoadWords, word);
  return static_cast<scheduler::MayLoad>(found - std::begin(config::kMayLoadWords));
}

}  // namespace

scheduler::TenantPolicy policy_of(const config::TenantRule& rule) {
  return {.name = rule.name,
          .weight = rule.weight,
          .most_urgent_priority = static_cast<std::int32_t>(rule.most_urgent_priority),
          .public_cache = rule.cache_scope == "public",
          .limits = {.max_running = limit_of<std::uint32_t>(rule.max_running),
                     .max_queued = limit_of<std::uint32_t>(rule.max_queued),
                     .max_prompt_tokens_per_minute = limit_of<std::uint64_t>(rule.max_prompt_tokens_per_minute),
                     .max_answer_tokens_per_minute = limit_of<std::uint64_t>(rule.max_answer_tokens_per_minute),
                     .min_kv_blocks = limit_of<std::uint32_t>(rule.min_kv_blocks),
                     .max_kv_blocks = limit_of<std::uint32_t>(rule.max_kv_blocks),
                     .max_context = limit_of<std::uint32_t>(rule.max_context),
                     .max_choices = limit_of<std::uint32_t>(rule.max_choices)},
          .predict = rule.predict ? std::optional(config::answer_length(*rule.predict)) : std::nullopt,
          .models = rule.models,
          .may_load = may_load_of(rule.may_load)};
}

Status check_cgroup_rules(const config::Given& given, std::string_view own_cgroups) {
  const auto rule = std::find_if(given.tenants.begin(), given.tenants.end(),
                                 [](const config::TenantRule& each) { return !each.cgroup.empty(); });
  if (rule == given.tenants.end() || !ipc::cgroup_path(own_cgroups).empty()) return Ok{};
  return bad_rule(given, *rule,
                  fmt::format("cgroup = '{}' would match no process: /proc/self/cgroup has neither a line of cgroup v2 "
                              "(0::/...) nor one of systemd (name=systemd:/...); name users or groups",
                              rule->cgroup));
}

Result<ipc::TenantRules> tenant_rules(const config::Given& given) {
  std::ifstream own("/proc/self/cgroup");
  const std::string own_cgroups{std::istreambuf_iterator<char>(own), {}};
  if (Status known = check_cgroup_rules(given, own_cgroups); !known) return known.error();
  std::vector<ipc::TenantRule> rules;
  std::unordered_map<TenantId, std::string> names;
  std::unordered_map<std::uint32_t, int> lines_of_users;
  for (const config::TenantRule& from : given.tenants) {
    ipc::TenantRule rule;
    rule.uids.assign(from.uid.begin(), from.uid.end());
    rule.gids.assign(from.gid.begin(), from.gid.end());
    if (Status added = add_ids(given, from, "user", find_user, from.user, rule.uids); !added) return added.error();
    if (Status added = add_ids(given, from, "group", find_group, from.group, rule.gids); !added) return added.error();
    for (const std::uint32_t uid : rule.uids)
      if (const int line = lines_of_users.emplace(uid, from.line).first->second; line != from.line)
        return bad_rule(
            given, from,
            fmt::format("the rule in line {} names uid {}, too, and comes first; name it in one of them", line, uid));
    rule.cgroup = from.cgroup;
    rule.is_default = from.is_default;
    rule.is_tcp = from.tcp;
    rule.trusted_proxy = from.trusted_proxy;
    rule.policy = std::make_shared<const scheduler::TenantPolicy>(policy_of(from));
    if (!from.name.empty()) {
      const auto [taken, is_new] = names.emplace(scheduler::named_tenant(from.name), from.name);
      if (!is_new)
        return bad_rule(given, from,
                        fmt::format("the names {} and {} have the same id by chance; choose another name", from.name,
                                    taken->second));
    }
    rules.push_back(std::move(rule));
  }
  return ipc::TenantRules(std::move(rules));
}

Status check_kept_blocks(const config::Given& given, const ipc::TenantRules& rules, std::uint64_t num_blocks) {
  std::uint64_t kept = 0;
  for (std::size_t i = 0; i < rules.rules().size(); ++i) {
    const ipc::TenantRule& rule = rules.rules()[i];
    const std::uint64_t blocks = ipc::kept_blocks(rule);
    kept += blocks;
    if (blocks > 0 && kept > num_blocks)
      return bad_rule(given, given.tenants.at(i),
                      fmt::format("with this rule {} KV blocks are kept for tenants (min-kv-blocks), and the model has "
                                  "{}; keep fewer, or serve with a larger --memory",
                                  kept, num_blocks));
  }
  return Ok{};
}

}  // namespace troupe::cli
