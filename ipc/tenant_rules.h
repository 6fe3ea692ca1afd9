// Which tenant a connection belongs to, by what the kernel says of its peer. Plain logic.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/shares/tenant.h"

namespace troupe::ipc {

// What the kernel says of the process that has connected (peer_facts.h reads it).
struct PeerFacts {
  std::uint32_t uid = 0;
  bool has_uid = true;                // false: over TCP, and the kernel names no user; only rules of TCP match
  std::vector<std::uint32_t> gids{};  // primary and supplementary
  std::string cgroup{};               // its path in cgroup v2: "/user.slice/..."; empty: not known
};

// A rule whose users and groups are looked up. It matches a peer that one of its criteria names.
struct TenantRule {
  std::vector<std::uint32_t> uids{};
  std::vector<std::uint32_t> gids{};
  std::string cgroup{};     // this cgroup and those below it; empty: none
  bool is_default = false;  // matches every peer with a uid
  bool is_tcp = false;      // matches peers over TCP without a known uid
  bool trusted_proxy = false;
  std::shared_ptr<const scheduler::TenantPolicy> policy{};  // not null. With a name: all that match are one tenant
};

// Blocks that the rule keeps (min_kv_blocks), for all its tenants together. A rule without a name that keeps blocks
// lists its users (config/options/tenant_rules.h).
[[nodiscard]] std::uint64_t kept_blocks(const TenantRule& rule);

// Immutable; copies share the policies.
class TenantRules {
 public:
  struct Match {
    scheduler::Tenant tenant;    // is_owner is left false
    bool trusted_proxy = false;  // it may say for which tenant it acts
  };

  // No rules: each uid is a tenant without a policy.
  TenantRules() = default;
  // Fills in what each policy says of the other tenants (others_min_kv_blocks).
  explicit TenantRules(std::vector<TenantRule> rules);

  // By the first rule that matches. O(size of the rules).
  [[nodiscard]] Match resolve(const PeerFacts& peer) const;
  // The tenant that a trusted proxy names: "web", or "1000" for that of a uid, to which rules by gid, group and cgroup
  // do not apply. nullopt: no rule has the name.
  [[nodiscard]] std::optional<scheduler::Tenant> find(std::string_view label) const;

  // A tenant of this policy's name, which no rule has: what the rules keep for theirs is kept from it.
  [[nodiscard]] scheduler::Tenant apart(scheduler::TenantPolicy policy) const;

  // Whether a rule depends on the cgroup.
  [[nodiscard]] bool need_cgroup() const;
  // Whether a rule matches peers over TCP without a known uid.
  [[nodiscard]] bool name_tcp() const;
  [[nodiscard]] const std::vector<TenantRule>& rules() const { return rules_; }

 private:
  std::vector<TenantRule> rules_;
  std::uint64_t kept_ = 0;                                    // blocks, of all rules
  std::shared_ptr<const scheduler::TenantPolicy> otherwise_;  // of a peer that no rule matches
};

// The uid that a label of digits names; nullopt: it is a name, or 4294967295, which is no user's ((uid_t)-1).
[[nodiscard]] std::optional<std::uint32_t> uid_of_label(std::string_view label);

}  // namespace troupe::ipc
