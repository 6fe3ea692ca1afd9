#include "config/options/tenant_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/options/config_file.h"
#include "config/options/values.h"

namespace troupe::config {
namespace {

using RuleField = std::variant<bool TenantRule::*, double TenantRule::*, std::string TenantRule::*,
                               std::int64_t TenantRule::*, std::optional<std::int64_t> TenantRule::*,
                               std::vector<std::int64_t> TenantRule::*, std::vector<std::string> TenantRule::*>;

// A key of a [[tenant]] table. The range is of numbers.
struct RuleKey {
  std::string_view name;
  RuleField field;
  double min = 0, max = 0;
};

constexpr double kMaxId = 4294967294;   // 2^32 - 1 stands for "no user" in the kernel's interfaces
constexpr double kMaxCount = 1u << 30;  // of requests, blocks, tokens of a sequence
constexpr double kMaxTokens = 1e12;     // per minute

const RuleKey kRuleKeys[] = {
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
    {"trusted-proxy", &TenantRule::trusted_proxy},
    {"tcp", &TenantRule::tcp},
};

Error at(int line, const std::string& why) { return {ErrorCode::bad_config, fmt::format("{}: {}", line, why)}; }

template <class... Ts>
struct CasesOfField : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
CasesOfField(Ts...) -> CasesOfField<Ts...>;

// Sets one field from an entry; the result says why that cannot be, and is empty if it can.
class RuleReader {
 public:
  RuleReader(const RuleKey& key, const TableEntry& entry, TenantRule& rule) : key_(key), entry_(entry), rule_(rule) {}

  std::string read() {
    return std::visit([this](auto field) { return assign(rule_.*field); }, key_.field);
  }

 private:
  std::string wrong_type(std::string_view wanted) const { return fmt::format("{} takes {}", key_.name, wanted); }
  std::string out_of_range(const std::string& value) const {
    const auto text = [](double bound) {
      return bound == std::floor(bound) ? std::to_string(static_cast<std::int64_t>(bound)) : format_number(bound);
    };
    return fmt::format("{} is {}; it may be from {} to {}", key_.name, value, text(key_.min), text(key_.max));
  }
  bool in_range(double value) const { return value >= key_.min && value <= key_.max; }

  // The one value, if it has this type.
  template <class T>
  const T* only() const {
    return entry_.is_list || entry_.values.size() != 1 ? nullptr : std::get_if<T>(&entry_.values.front());
  }

  std::string assign(bool& field) {
    const bool* value = only<bool>();
    if (!value) return wrong_type("true or false");
    field = *value;
    return {};
  }
  std::string assign(double& field) {
    const auto* whole = only<std::int64_t>();
    const auto* number = only<double>();
    if (!whole && !number) return wrong_type("a number");
    const double value = number ? *number : static_cast<double>(*whole);
    if (!in_range(value)) return out_of_range(format_number(value));
    field = value;
    return {};
  }
  std::string assign(std::int64_t& field) {
    const auto* value = only<std::int64_t>();
    if (!value) return wrong_type("a whole number");
    if (!in_range(static_cast<double>(*value))) return out_of_range(std::to_string(*value));
    field = *value;
    return {};
  }
  std::string assign(std::optional<std::int64_t>& field) { return assign(field.emplace()); }
  std::string assign(std::string& field) {
    const auto* value = only<std::string>();
    if (!value) return wrong_type("a string in quotes");
    if (value->empty()) return wrong_type("a string that is not empty");
    field = *value;
    return {};
  }
  std::string assign(std::vector<std::int64_t>& field) {
    for (const TableEntry::Scalar& scalar : entry_.values) {
      const auto* value = std::get_if<std::int64_t>(&scalar);
      if (!value) return wrong_type("a whole number or a list of them");
      if (!in_range(static_cast<double>(*value))) return out_of_range(std::to_string(*value));
      field.push_back(*value);
    }
    return field.empty() ? wrong_type("at least one number") : "";
  }
  std::string assign(std::vector<std::string>& field) {
    for (const TableEntry::Scalar& scalar : entry_.values) {
      const auto* value = std::get_if<std::string>(&scalar);
      if (!value || value->empty()) return wrong_type("a name in quotes or a list of them");
      field.push_back(*value);
    }
    return field.empty() ? wrong_type("at least one name") : "";
  }

  const RuleKey& key_;
  const TableEntry& entry_;
  TenantRule& rule_;
};

std::string unknown_rule_key(const std::string& key) {
  std::vector<std::string> known;
  for (const RuleKey& one : kRuleKeys) known.emplace_back(one.name);
  const auto is_option = [&](const Option& option) { return option.name == key; };
  if (std::any_of(option_table().begin(), option_table().end(), is_option))
    return fmt::format("{} is no key of a tenant; options stand above the first [[tenant]]", key);
  if (const auto likely = nearest(key, known))
    return fmt::format("unknown key {} of a tenant; did you mean {}?", key, *likely);
  return fmt::format("unknown key {} of a tenant; there are {}", key, fmt::join(known, ", "));
}

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
  for (const TableEntry& entry : table.entries) {
    const auto key = std::find_if(std::begin(kRuleKeys), std::end(kRuleKeys),
                                  [&](const RuleKey& known) { return known.name == entry.key; });
    if (key == std::end(kRuleKeys)) return at(entry.line, unknown_rule_key(entry.key));
    if (const std::string wrong = RuleReader(*key, entry, rule).read(); !wrong.empty()) return at(entry.line, wrong);
  }
  if (const std::string problem = problem_of(rule); !problem.empty()) return at(rule.line, problem);
  return rule;
}

// The value of a field as it stands in a file; empty: it is the default.
std::string rule_value(const TenantRule& rule, const RuleField& field) {
  static const TenantRule kPresets;
  const auto list = [](const auto& values, auto to_text) {
    std::vector<std::string> texts;
    for (const auto& value : values) texts.push_back(to_text(value));
    return texts.empty() ? std::string() : fmt::format("[{}]", fmt::join(texts, ", "));
  };
  const auto digits = [](std::int64_t number) { return std::to_string(number); };
  const auto scalar = [&](auto member, const auto& to_text) {
    return rule.*member == kPresets.*member ? std::string() : std::string(to_text(rule.*member));
  };
  return std::visit(
      CasesOfField{
          [&](bool TenantRule::*member) { return scalar(member, [](bool value) { return value ? "true" : "false"; }); },
          [&](double TenantRule::*member) { return scalar(member, format_number); },
          [&](std::string TenantRule::*member) { return scalar(member, toml_string); },
          [&](std::int64_t TenantRule::*member) { return scalar(member, digits); },
          [&](std::optional<std::int64_t> TenantRule::*member) {
            return rule.*member ? digits(*(rule.*member)) : std::string();
          },
          [&](std::vector<std::int64_t> TenantRule::*member) { return list(rule.*member, digits); },
          [&](std::vector<std::string> TenantRule::*member) { return list(rule.*member, toml_string); },
      },
      field);
}

}  // namespace

Result<std::vector<TenantRule>> to_tenant_rules(std::span<const Table> tables) {
  std::vector<TenantRule> rules;
  for (const Table& table : tables) {
    if (rules.size() == kMaxTenantRules)
      return at(table.line, fmt::format("there may be at most {} tables [[tenant]]", kMaxTenantRules));
    auto rule = to_tenant_rule(table);
    if (!rule) return rule.error();
    rules.push_back(std::move(*rule));
    if (const std::string conflict = conflict_of(rules); !conflict.empty()) return at(table.line, conflict);
  }
  return rules;
}

std::string to_toml(const TenantRule& rule) {
  std::string text;
  for (const RuleKey& key : kRuleKeys)
    if (const std::string value = rule_value(rule, key.field); !value.empty())
      text += fmt::format("{} = {}\n", key.name, value);
  return text;
}

}  // namespace troupe::config
