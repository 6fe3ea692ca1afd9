#include "config/options/tenant_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "config/options/table_keys.h"
#include "config/printable.h"

namespace troupe::config {
namespace {

constexpr double kMaxId = 4294967294;   // 2^32 - 1 stands for "no user" in the kernel's interfaces
constexpr double kMaxCount = 1u << 30;  // of requests, blocks, tokens of a sequence
constexpr double kMaxTokens = 1e12;     // per minute

constexpr std::string_view kKind = "tenant";

const TableKey<TenantRule> kRuleKeys[] = {
    {"uid", &TenantRule::uid, 0, kMaxId},
    {"user", &TenantRule::user},
    {"gid", &TenantRule::gid, 0, kMaxId},
    {"group", &TenantRule::group},
    {"cgroup", &TenantRule::cgroup},
    {"default", &TenantRule::is_default},
    {"name", &TenantRule::name},
    {"weight", &TenantRule::weight, 0.001, 1000},
    {"most-urgent-priority", &TenantRule::most_urgent_priority, -1000, 1000},
    {"cache-scope", &TenantRule::cache_scope},
    {"max-running", &TenantRule::max_running, 1, kMaxCount},
    {"max-queued", &TenantRule::max_queued, 1, kMaxCount},
    {"max-prompt-tokens-per-minute", &TenantRule::max_prompt_tokens_per_minute, 1, kMaxTokens},
    {"max-answer-tokens-per-minute", &TenantRule::max_answer_tokens_per_minute, 1, kMaxTokens},
    {"min-kv-blocks", &TenantRule::min_kv_blocks, 0, kMaxCount},
    {"max-kv-blocks", &TenantRule::max_kv_blocks, 1, kMaxCount},
    {"max-context", &TenantRule::max_context, 2, kMaxCount},
    {"max-choices", &TenantRule::max_choices, 1, 64},
    {"predict", &TenantRule::predict, -1, kMaxCount},
    {"trusted-proxy", &TenantRule::trusted_proxy},
    {"tcp", &TenantRule::tcp},
    {"models", &TenantRule::models},
    {"may-load", &TenantRule::may_load},
};

// Names stand in metrics, in messages and, beside uids, in a proxy's Hello.
bool is_tenant_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto may_follow = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxTenantNameBytes && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(), may_follow);
}

bool names_users(const TenantRule& rule) { return !rule.uid.empty() || !rule.user.empty(); }
bool names_others(const TenantRule& rule) { return !rule.gid.empty() || !rule.group.empty() || !rule.cgroup.empty(); }

// What is wrong with a rule by itself; empty: nothing.
std::string problem_of(const TenantRule& rule) {
  const bool has_criterion = names_users(rule) || names_others(rule);
  if (!has_criterion && !rule.is_default && !rule.tcp)
    return "this rule matches nothing: give it uid, user, gid, group, cgroup, default = true, or tcp = true";
  if (rule.predict == 0) return "predict is 0; an answer has at least one token, and -1 is no limit";
  if (has_criterion && rule.is_default)
    return "default = true matches all users: leave it out, or leave the others out (uid, user, gid, group, cgroup)";
  if (rule.tcp && rule.name.empty())
    return "tcp = true matches clients that have no uid here, so the rule needs a name, which all of them share";
  if (rule.tcp && rule.trusted_proxy)
    return "trusted-proxy = true with tcp = true would let every client over TCP act for every tenant";
  if (rule.is_default && rule.trusted_proxy)
    return "trusted-proxy = true with default = true would let every user act for every tenant; name the proxy's user";
  if (!rule.cgroup.empty() && rule.cgroup.front() != '/')
    return fmt::format("cgroup is '{}'; it must begin with /, as in /proc/PID/cgroup", rule.cgroup);
  if (!rule.name.empty() && !is_tenant_name(rule.name))
    return fmt::format("name is '{}'; it must begin with a letter and have at most {} letters, digits, '.', '_', '-'",
                       rule.name, kMaxTenantNameBytes);
  if (rule.cache_scope != "own" && rule.cache_scope != "public")
    return fmt::format("cache-scope is '{}'; it may be \"own\" or \"public\"", rule.cache_scope);
  if (!rule.may_load.empty() && std::ranges::find(kMayLoadWords, rule.may_load) == std::end(kMayLoadWords))
    return fmt::format("may-load is '{}'; it may be {}", Printable(rule.may_load).text(),
                       fmt::join(kMayLoadWords, ", "));
  if (rule.models.size() > kMaxTenantModels)
    return fmt::format("{} names of models; a rule has at most {}: * stands for any characters", rule.models.size(),
                       kMaxTenantModels);
  for (const std::string& model : rule.models)
    if (std::string problem = problem_of_model_name(model); !problem.empty()) return "models: " + problem;
  if (rule.min_kv_blocks && rule.max_kv_blocks && *rule.min_kv_blocks > *rule.max_kv_blocks)
    return fmt::format("min-kv-blocks is {}, above max-kv-blocks, which is {}", *rule.min_kv_blocks,
                       *rule.max_kv_blocks);
  if (rule.min_kv_blocks && rule.name.empty() && !(names_users(rule) && !names_others(rule)))
    return "min-kv-blocks of a rule without a name would be kept for any number of users: give the rule a name, or "
           "only "
           "uid and user";
  return {};
}

// What is wrong with the last rule beside those before it; empty: nothing.
std::string conflict_of(std::span<const TenantRule> rules) {
  const TenantRule& last = rules.back();
  for (const TenantRule& rule : rules.first(rules.size() - 1)) {
    if (rule.is_default && !last.tcp)  // those of TCP have no uid that it could match
      return fmt::format("this rule matches nothing: the one in line {} (default = true) comes first", rule.line);
    if (!last.name.empty() && rule.name == last.name)
      return fmt::format("the rule in line {} has the name {}, too; put both into one, or choose another name",
                         rule.line, rule.name);
  }
  return {};
}

Result<TenantRule> to_tenant_rule(const Table& table) {
  TenantRule rule;
  rule.line = table.line;
  if (Status read = read_row<TenantRule>(kRuleKeys, kKind, table, rule); !read) return read.error();
  if (const std::string problem = problem_of(rule); !problem.empty()) return error_in_line(rule.line, problem);
  return rule;
}

}  // namespace

Result<std::vector<TenantRule>> to_tenant_rules(std::span<const Table> tables) {
  std::vector<TenantRule> rules;
  for (const Table& table : tables) {
    if (rules.size() == kMaxTenantRules)
      return error_in_line(table.line, fmt::format("there may be at most {} tables [[tenant]]", kMaxTenantRules));
    auto rule = to_tenant_rule(table);
    if (!rule) return rule.error();
    rules.push_back(std::move(*rule));
    if (const std::string conflict = conflict_of(rules); !conflict.empty()) return error_in_line(table.line, conflict);
  }
  return rules;
}

std::string to_toml(const TenantRule& rule) { return row_to_toml<TenantRule>(kRuleKeys, rule); }

}  // namespace troupe::config
