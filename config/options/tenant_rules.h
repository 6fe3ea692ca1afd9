// Rules that say which tenant a user is and what it may have: the [[tenant]] tables of troupe.toml, as they stand
// there. Names of users and groups are not looked up yet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/options/table.h"
#include "config/result.h"

namespace troupe::config {

inline constexpr std::size_t kMaxTenantRules = 1024;
inline constexpr std::size_t kMaxTenantNameBytes = 64;
inline constexpr std::size_t kMaxTenantModels = 64;  // names and patterns of one rule
// Whether requests may have a model loaded that is not in memory, as scheduler::MayLoad, in its order.
inline constexpr std::string_view kMayLoadWords[] = {"never", "idle", "turns"};

struct TenantRule {
  int line = 0;  // of its header, from 1

  // What it matches: a user that one of these names. At least one of them is given; `is_default` stands alone.
  std::vector<std::int64_t> uid{};
  std::vector<std::string> user{};
  std::vector<std::int64_t> gid{};
  std::vector<std::string> group{};
  std::string cgroup{};     // "/system.slice/web.service": this cgroup and those below it
  bool is_default = false;  // all users
  bool tcp = false;         // clients over TCP whose user the kernel does not name

  // What it gives.
  std::string name{};  // all that the rule matches are one tenant of this name; empty: each uid is one of its own
  double weight = 1;
  std::int64_t most_urgent_priority = 0;
  std::string cache_scope = "own";  // or "public"
  std::optional<std::int64_t> max_running{};
  std::optional<std::int64_t> max_queued{};
  std::optional<std::int64_t> max_prompt_tokens_per_minute{};
  std::optional<std::int64_t> max_answer_tokens_per_minute{};
  std::optional<std::int64_t> min_kv_blocks{};
  std::optional<std::int64_t> max_kv_blocks{};
  std::optional<std::int64_t> max_context{};
  std::optional<std::int64_t> max_choices{};
  std::optional<std::int64_t> predict{};  // tokens of an answer to a request that names no length; -1: no limit
  bool trusted_proxy = false;             // its connections may say for which tenant they act
  std::vector<std::string> models{};      // that it may use; * stands for any characters; empty: all
  std::string may_load{};                 // of kMayLoadWords; empty: the server's group has turns, others idle memory
};

// The rules of these tables, in their order. Error: bad_config, "LINE: WHY": an unknown key (with the nearest name), a
// value of the wrong type or out of range, a rule that can match nothing, a name that two rules have, a minimum above
// its maximum.
[[nodiscard]] Result<std::vector<TenantRule>> to_tenant_rules(std::span<const Table> tables);

// The keys of the rule that have another value than the default, a line each, as they stand below [[tenant]].
[[nodiscard]] std::string to_toml(const TenantRule& rule);

// Whether they say the same, in whatever lines.
[[nodiscard]] inline bool operator==(const TenantRule& a, const TenantRule& b) { return to_toml(a) == to_toml(b); }

}  // namespace troupe::config
