// For which tenant the requests of a connection count.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "config/printable.h"
#include "config/tenant_rules.h"
#include "ipc/session.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

constexpr const char* kHelloTenant = "hello.tenant";

Refusal may_not_act(std::string message) {
  return {.code = Outcome::permission, .field = kHelloTenant, .message = std::move(message)};
}

}  // namespace

scheduler::Tenant tenant_of(const TenantRules& rules, const PeerFacts& peer) {
  scheduler::Tenant tenant = rules.resolve(peer).tenant;
  tenant.is_owner = is_owner(peer.uid);
  return tenant;
}

std::variant<scheduler::Tenant, Refusal> tenant_for(const TenantRules& rules, const PeerFacts& peer,
                                                    const std::string& label) {
  if (label.empty()) return tenant_of(rules, peer);
  if (label.size() > config::kMaxTenantNameBytes)
    return invalid(kHelloTenant, fmt::format("the tenant's name has {} bytes; at most {} are taken", label.size(),
                                             config::kMaxTenantNameBytes));
  if (!rules.resolve(peer).trusted_proxy)
    return may_not_act(
        fmt::format("uid {} may not act for tenants; a rule with trusted-proxy = true allows it", peer.uid));
  if (const auto uid = uid_of_label(label); uid && is_owner(*uid))
    return may_not_act(fmt::format("uid {} is the server's own user or root; no proxy acts for them", *uid));
  if (auto tenant = rules.find(label)) return *std::move(tenant);
  return invalid(kHelloTenant, fmt::format("no rule of this server names a tenant {}; name one, or a uid in digits",
                                           Printable(label).text()));
}

std::optional<Refusal> Session::decide_tenant() {
  auto tenant = tenant_for(hub_.options.tenants, facts_, acts_for_);
  if (Refusal* refusal = std::get_if<Refusal>(&tenant)) return std::move(*refusal);
  tenant_ = std::get<scheduler::Tenant>(std::move(tenant));
  if (tally_->tenant != tenant_.id) tally_ = hub_.tally(tenant_.id);
  return std::nullopt;
}

void Session::take_rules() {
  if (closing_ || !socket_.is_open()) return;
  // What was read at the begin stays: the process may have ended since. What no rule needed then is read now.
  PeerFacts now = facts_of(peer_, socket_.native_handle(), hub_.options.tenants);
  if (facts_.cgroup.empty()) facts_.cgroup = std::move(now.cgroup);
  if (facts_.gids.size() < now.gids.size()) facts_.gids = std::move(now.gids);
  if (const auto refusal = decide_tenant()) break_off(*refusal);
}

}  // namespace troupe::ipc
