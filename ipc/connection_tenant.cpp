// For which tenant the requests of a connection count.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "config/options/tenant_rules.h"
#include "config/printable.h"
#include "ipc/connection.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

Refusal may_not_act(const char* field, std::string message) {
  return {.outcome = Outcome::permission, .message = std::move(message), .field = field};
}

}  // namespace

Refusal unnamed_over_tcp() {
  return {
      .outcome = Outcome::permission,
      .message =
          "the kernel of this machine does not say which of its users is calling over TCP, as of another machine or "
          "container; use the Unix socket, or ask the server's owner for a key (troupe key add) or for a "
          "[[tenant]] rule with tcp = true"};
}

scheduler::Tenant tenant_of(const TenantRules& rules, const PeerFacts& peer) {
  scheduler::Tenant tenant = rules.resolve(peer).tenant;
  tenant.is_owner = is_owner(peer.uid);
  tenant.in_owner_group = peer.has_uid && std::ranges::find(peer.gids, ::getegid()) != peer.gids.end();
  return tenant;
}

std::variant<scheduler::Tenant, Refusal> tenant_for(const TenantRules& rules, const PeerFacts& peer,
                                                    const std::string& label, const char* field) {
  if (label.empty()) return tenant_of(rules, peer);
  if (label.size() > config::kMaxTenantNameBytes)
    return scheduler::invalid(field, fmt::format("the tenant's name has {} bytes; at most {} are taken", label.size(),
                                                 config::kMaxTenantNameBytes));
  if (!rules.resolve(peer).trusted_proxy)
    return may_not_act(
        field, fmt::format("uid {} may not act for tenants; a rule with trusted-proxy = true allows it", peer.uid));
  if (const auto uid = uid_of_label(label); uid && is_owner(*uid))
    return may_not_act(field, fmt::format("uid {} is the server's own user or root; no proxy acts for them", *uid));
  if (auto tenant = rules.find(label)) return *std::move(tenant);
  return scheduler::invalid(field, fmt::format("no rule of this server names a tenant {}; name one, or a uid in digits",
                                               Printable(label).text()));
}

void Connection::set_tenant(scheduler::Tenant tenant) {
  tenant_ = std::move(tenant);
  if (tally_->tenant != tenant_.id) tally_ = hub_.tally(tenant_.id);
}

void Connection::take_rules() {
  if (closing_ || !socket_.is_open()) return;
  if (!caller_.is_tcp) {
    // What was read at the begin stays: the process may have ended since. What no rule needed then is read now.
    PeerFacts now = facts_of(caller_.peer, socket_.native_handle(), hub_.options.tenants);
    PeerFacts& then = caller_.facts;
    if (then.cgroup.empty()) then.cgroup = std::move(now.cgroup);
    if (then.gids.size() < now.gids.size()) then.gids = std::move(now.gids);
  }
  if (const auto refusal = decide_tenant()) break_off(*refusal);
}

}  // namespace troupe::ipc
