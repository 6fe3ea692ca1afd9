#include "ipc/tenant_rules.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "ipc/sockets/peer_facts.h"

namespace troupe::ipc {
namespace {

using scheduler::named_tenant;
using scheduler::TenantPolicy;

std::shared_ptr<const TenantPolicy> policy(const std::string& name, double weight = 1) {
  return std::make_shared<const TenantPolicy>(TenantPolicy{.name = name, .weight = weight});
}

TenantRules some_rules() {
  return TenantRules({
      {.uids = {7}, .trusted_proxy = true, .policy = policy("proxy")},
      {.uids = {1000, 1001}, .policy = policy("team", 3)},
      {.gids = {50}, .policy = policy("", 2)},
      {.cgroup = "/system.slice/web.service/", .policy = policy("web")},
      {.is_default = true, .policy = policy("", 0.5)},
  });
}

TEST_CASE("without rules each uid is a tenant of weight 1 without limits") {
  const auto [tenant, trusted] = TenantRules().resolve({.uid = 1234, .gids = {5}});
  REQUIRE(tenant.id == TenantId{1234});
  REQUIRE(tenant.weight() == 1);
  REQUIRE(tenant.limits() == scheduler::TenantLimits{});
  REQUIRE_FALSE(trusted);
  REQUIRE_FALSE(TenantRules().need_cgroup());
  REQUIRE_FALSE(TenantRules().find("web"));
  REQUIRE(TenantRules().find("1000")->id == TenantId{1000});
  REQUIRE(TenantRules().find("4294967294")->id == TenantId{4294967294});
  REQUIRE_FALSE(TenantRules().find("4294967295"));  // (uid_t)-1: no user, and all clients over TCP
  REQUIRE_FALSE(uid_of_label("4294967295"));
}

TEST_CASE("the first rule that matches decides, by uid, group, cgroup or default") {
  const TenantRules rules = some_rules();
  const auto tenant_of_peer = [&](const PeerFacts& peer) { return rules.resolve(peer).tenant; };
  REQUIRE(tenant_of_peer({.uid = 1000}).id == named_tenant("team"));
  REQUIRE(tenant_of_peer({.uid = 1001, .gids = {50}}).id == named_tenant("team"));
  REQUIRE(tenant_of_peer({.uid = 1001}).weight() == 3);
  // Without a name each uid is a tenant of its own.
  REQUIRE(tenant_of_peer({.uid = 2000, .gids = {1, 50}}).id == TenantId{2000});
  REQUIRE(tenant_of_peer({.uid = 2000, .gids = {1, 50}}).weight() == 2);
  REQUIRE(tenant_of_peer({.uid = 3000, .gids = {51}}).weight() == 0.5);
  REQUIRE(tenant_of_peer({.uid = 3000}).id == TenantId{3000});
  REQUIRE(rules.resolve({.uid = 7}).trusted_proxy);
  REQUIRE_FALSE(rules.resolve({.uid = 8}).trusted_proxy);
  REQUIRE(rules.need_cgroup());
}

TEST_CASE("a cgroup matches itself and those below it, not those whose names begin alike") {
  const TenantRules rules = some_rules();
  const auto is_web = [&](const std::string& cgroup) {
    return rules.resolve({.uid = 33, .cgroup = cgroup}).tenant.id == named_tenant("web");
  };
  REQUIRE(is_web("/system.slice/web.service"));
  REQUIRE(is_web("/system.slice/web.service/worker-1"));
  REQUIRE_FALSE(is_web("/system.slice/web.service2"));
  REQUIRE_FALSE(is_web("/system.slice"));
  REQUIRE_FALSE(is_web("/"));
  REQUIRE_FALSE(is_web(""));
  const TenantRules all({{.cgroup = "/", .policy = policy("known")}});
  REQUIRE(all.resolve({.uid = 1, .cgroup = "/a/b"}).tenant.id == named_tenant("known"));
  REQUIRE(all.resolve({.uid = 1, .cgroup = "/"}).tenant.id == named_tenant("known"));
  REQUIRE(all.resolve({.uid = 1}).tenant.id == TenantId{1});
}

TEST_CASE("a proxy names tenants by name or uid, and groups and cgroups have no part in it") {
  const TenantRules rules = some_rules();
  REQUIRE(rules.find("team")->id == named_tenant("team"));
  REQUIRE(rules.find("team")->weight() == 3);
  REQUIRE(rules.find("1000")->id == named_tenant("team"));
  REQUIRE(rules.find("2000")->id == TenantId{2000});
  REQUIRE(rules.find("2000")->weight() == 0.5);
  for (const char* label : {"", "nobody", "Team", "-1", "1000 ", "4294967296", "0x10"}) {
    CAPTURE(label);
    REQUIRE_FALSE(rules.find(label));
  }
}

TEST_CASE("on a machine with cgroup v1 the path is that of systemd's hierarchy") {
  REQUIRE(cgroup_path("9:memory:/m\n1:name=systemd:/system.slice/web.service\n") == "/system.slice/web.service");
  REQUIRE(cgroup_path("1:name=systemd:/a:b/c\n0::/\n") == "/a:b/c");  // v2 is mounted and has all at its root
  REQUIRE(cgroup_path("1:name=systemd:/\n") == "/");
  REQUIRE(cgroup_path("0::/x\n1:name=systemd:/y\n") == "/x");
  REQUIRE(cgroup_path("1:cpu:/a:name=systemd:/b\n").empty());
  REQUIRE(cgroup_path("1:name=systemd:\n1:name=systemd").empty());
}

TEST_CASE("the path in cgroup v2 is read from /proc/PID/cgroup, among those of v1") {
  REQUIRE(cgroup_path("0::/user.slice/user-1000.slice\n") == "/user.slice/user-1000.slice");
  REQUIRE(cgroup_path("12:pids:/a\n1:name=systemd:/b\n0::/c d\n") == "/c d");
  REQUIRE(cgroup_path("0::/") == "/");
  for (const char* none : {"", "\n", "12:pids:/a\n", "10::/a\n", "0::\n", "0:"}) REQUIRE(cgroup_path(none).empty());
}

TEST_CASE("the cgroup of a peer is that of its process, and unknown for another uid's or one that has ended") {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream content;
  content << file.rdbuf();
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  Peer self{.uid = ::geteuid(), .gid = ::getegid(), .pid = ::getpid()};
  REQUIRE(cgroup_of(self, ends[0]) == cgroup_path(content.str()));
  self.uid = ::geteuid() + 1;
  REQUIRE(cgroup_of(self, ends[0]).empty());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  REQUIRE(cgroup_of({.uid = ::geteuid(), .gid = 0, .pid = child}, ends[0]).empty());
  REQUIRE(cgroup_of({.uid = ::geteuid(), .gid = 0, .pid = 0}, ends[0]).empty());
  const PeerFacts facts = facts_of({.uid = 5, .gid = 6, .pid = 0}, ends[0], TenantRules());
  REQUIRE(facts.uid == 5);
  REQUIRE(facts.gids == std::vector<std::uint32_t>{6});
  REQUIRE(facts.cgroup.empty());
  for (const int fd : ends) ::close(fd);
}

}  // namespace
}  // namespace troupe::ipc
