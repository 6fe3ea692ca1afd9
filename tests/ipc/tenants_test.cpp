// Tenants by rule, over a real socket: what requests count for, what a proxy may say, and what a reload changes.
#include <unistd.h>

#include <future>

#include "ipc/client/client.h"
#include "ipc/frames/frame_connection.h"
#include "tests/ipc/connect_as.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::named_tenant;
using scheduler::TenantPolicy;

TenantRule rule_for_us(TenantPolicy policy, bool trusted_proxy = false) {
  return {.uids = {::geteuid()},
          .trusted_proxy = trusted_proxy,
          .policy = std::make_shared<const TenantPolicy>(std::move(policy))};
}

TenantRule rule_for(std::vector<std::uint32_t> uids, TenantPolicy policy) {
  return {.uids = std::move(uids), .policy = std::make_shared<const TenantPolicy>(std::move(policy))};
}

ServerOptions with_rules(std::vector<TenantRule> rules) {
  ServerOptions options;
  options.tenants = TenantRules(std::move(rules));
  return options;
}

v1::ServerFrame greet_for(RawClient& client, const std::string& tenant) {
  v1::ClientFrame hello;
  hello.mutable_hello()->set_protocol(1);
  hello.mutable_hello()->set_tenant(tenant);
  REQUIRE(client.send(hello));
  return client.expect();
}

// Until then the server may not have handled earlier calls.
void wait_for_io(FakeServer& server) {
  std::promise<void> answered;
  server.server->status([&](actors::StatusSnapshot) { answered.set_value(); });
  REQUIRE(answered.get_future().wait_for(kPatience) == std::future_status::ready);
}

TEST_CASE("a request has the tenant and the policy of the rule that matches its user") {
  FakeServer server(with_rules({rule_for_us({.name = "web", .weight = 3, .public_cache = true})}));
  RawClient client(server.path());
  REQUIRE(client.hello().tenant() == "web");
  REQUIRE(client.send(generate_frame(1)));
  const actors::Request request = server.gateway.wait_submitted(0).request;
  REQUIRE(request.tenant.id == named_tenant("web"));
  REQUIRE(request.tenant.is_owner);  // as without rules
  REQUIRE(request.tenant.weight() == 3);
  REQUIRE(request.uid == ::geteuid());
  REQUIRE(request.cache_scope == "public");
  v1::ClientFrame scoped = generate_frame(2);
  scoped.mutable_generate()->set_cache_scope("mine");
  REQUIRE(client.send(scoped));
  REQUIRE(server.gateway.wait_submitted(1).request.cache_scope == "mine");
}

TEST_CASE("without rules the tenant is the uid") {
  FakeServer server;
  RawClient client(server.path());
  REQUIRE(client.hello().tenant() == std::to_string(::geteuid()));
  REQUIRE(client.send(generate_frame(1)));
  const actors::Request request = server.gateway.wait_submitted(0).request;
  REQUIRE(request.tenant.id == TenantId{::geteuid()});
  REQUIRE_FALSE(request.tenant.policy);
  REQUIRE(request.cache_scope.empty());
}

TEST_CASE("only a trusted proxy may name the tenant that it acts for, and not the server's own user") {
  FakeServer plain(with_rules({rule_for_us({.name = "web"})}));
  {
    RawClient client(plain.path());
    const v1::Refused refused = greet_for(client, "web").refused();
    REQUIRE(refused.code() == v1::OUTCOME_PERMISSION);
    REQUIRE(refused.field() == "hello.tenant");
    REQUIRE(refused.closing());
  }
  FakeServer server(
      with_rules({rule_for_us({.name = "proxy"}, true), rule_for({61001}, {.name = "web", .weight = 2})}));
  const auto refused_for = [&](const std::string& tenant) {
    RawClient client(server.path());
    const v1::ServerFrame answer = greet_for(client, tenant);
    REQUIRE(answer.has_refused());
    REQUIRE(answer.refused().field() == "hello.tenant");
    return answer.refused().code();
  };
  REQUIRE(refused_for("nobody") == v1::OUTCOME_INVALID_ARGUMENT);
  REQUIRE(refused_for(std::string(65, 'a')) == v1::OUTCOME_INVALID_ARGUMENT);
  REQUIRE(refused_for(std::to_string(::geteuid())) == v1::OUTCOME_PERMISSION);
  REQUIRE(refused_for("0") == v1::OUTCOME_PERMISSION);
  std::size_t number = 0;
  for (const auto& [label, shown, id] : {std::tuple{"web", "web", named_tenant("web")},
                                         {"61001", "web", named_tenant("web")},
                                         {"61002", "61002", TenantId{61002}},
                                         {"", "proxy", named_tenant("proxy")}}) {
    CAPTURE(label);
    RawClient client(server.path());
    REQUIRE(greet_for(client, label).welcome().tenant() == shown);
    REQUIRE(client.send(generate_frame(1)));
    const actors::Request request = server.gateway.wait_submitted(number++).request;
    REQUIRE(request.tenant.id == id);
    REQUIRE(request.tenant.is_owner == (*label == 0));
  }
}

TEST_CASE("the client library acts for a tenant, and says for which") {
  FakeServer server(with_rules({rule_for_us({.name = "proxy"}, true)}));
  const auto connect_for = [&](const std::string& tenant) {
    return client::Client::connect({.socket = server.path(), .connect_timeout = kPatience, .tenant = tenant});
  };
  const auto acting = connect_for("61001"), plain = connect_for(""), nobody = connect_for("nobody");
  REQUIRE(acting);
  REQUIRE((*acting)->server().tenant == "61001");
  REQUIRE(plain);
  REQUIRE((*plain)->server().tenant == "proxy");
  REQUIRE_FALSE(nobody);
  REQUIRE(nobody.error().message.find("no rule of this server names a tenant nobody") != std::string::npos);
}

TEST_CASE("a tenant's own requests are those of all its users, and no other's") {
  const TenantRules rules({rule_for({61001, 61002}, {.name = "team"})});
  const auto guest = [&](std::uint32_t uid) { return tenant_of(rules, {.uid = uid}); };
  REQUIRE(guest(61001).id == guest(61002).id);
  REQUIRE_FALSE(guest(61001).is_owner);
  FakeServer server(with_rules({rule_for_us({.name = "proxy"}, true), rule_for({61001, 61002}, {.name = "team"})}));
  RawClient first(server.path()), second(server.path()), other(server.path());
  REQUIRE(greet_for(first, "61001").has_welcome());
  REQUIRE(greet_for(second, "61002").has_welcome());
  REQUIRE(greet_for(other, "61003").has_welcome());
  REQUIRE(first.send(generate_frame(1)));
  server.gateway.wait_submitted(0);
  REQUIRE(second.send(generate_frame(1)));
  server.gateway.wait_submitted(1);
  v1::ClientFrame cancel;
  cancel.mutable_cancel_request()->set_stream(9);
  cancel.mutable_cancel_request()->set_request(1);
  REQUIRE(other.send(cancel));
  REQUIRE(other.expect().has_refused());  // it has none
  REQUIRE(second.send(cancel));           // the team's first one came on another connection
  REQUIRE(second.expect().has_request_cancelled());
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{1});
  REQUIRE(first.expect().done().reason() == v1::OUTCOME_CANCELLED);
  v1::ClientFrame ask;
  ask.mutable_status()->set_stream(9);
  const auto received = [&](RawClient& client) {
    REQUIRE(client.send(ask));
    return client.expect().status().requests_received();
  };
  REQUIRE(received(second) == 2);
  REQUIRE(received(first) == 2);
  REQUIRE(received(other) == 0);
}

TEST_CASE("a reload gives open connections the new rules for their next requests") {
  FakeServer server(with_rules({rule_for_us({.name = "old", .weight = 2})}));
  RawClient client(server.path());
  REQUIRE(client.hello().tenant() == "old");
  REQUIRE(client.send(generate_frame(1)));
  const auto live = server.gateway.wait_submitted(0);
  REQUIRE(server.server->reconfigure(with_rules({rule_for_us({.name = "new", .weight = 5})})));
  wait_for_io(server);
  REQUIRE(client.send(generate_frame(2)));
  const actors::Request next = server.gateway.wait_submitted(1).request;
  REQUIRE(next.tenant.id == named_tenant("new"));
  REQUIRE(next.tenant.weight() == 5);
  REQUIRE(live.request.tenant.weight() == 2);
  live.sink->end(end_of(scheduler::Outcome::eos));
  REQUIRE(client.expect().done().stream() == 1);
}

TEST_CASE("a proxy that a reload trusts no more is told so and loses its connection") {
  FakeServer server(with_rules({rule_for_us({.name = "proxy"}, true)}));
  RawClient acting(server.path()), plain(server.path());
  REQUIRE(greet_for(acting, "61001").has_welcome());
  REQUIRE(plain.hello().tenant() == "proxy");
  REQUIRE(server.server->reconfigure(with_rules({rule_for_us({.name = "proxy"})})));
  const v1::Refused last = acting.last_words();
  REQUIRE(last.code() == v1::OUTCOME_PERMISSION);
  REQUIRE(last.field() == "hello.tenant");
  REQUIRE(plain.send(generate_frame(1)));
  REQUIRE(server.gateway.wait_submitted(0).request.tenant.id == named_tenant("proxy"));
}

TEST_CASE("a rule's most urgent priority raises what is more urgent, and gives the right to ask for less than 0") {
  const auto priority_of = [](std::int32_t asked, std::int32_t most_urgent) -> std::optional<std::int32_t> {
    v1::ClientFrame frame = generate_frame(1);
    frame.mutable_generate()->set_priority(asked);
    const scheduler::Tenant guest{
        .id = TenantId{61001},
        .policy = std::make_shared<const TenantPolicy>(TenantPolicy{.most_urgent_priority = most_urgent})};
    const auto request = to_request(*frame.mutable_generate(), guest, actors::kMaxPromptBytes);
    if (const Refusal* refusal = std::get_if<Refusal>(&request)) {
      REQUIRE(refusal->outcome == scheduler::Outcome::permission);
      return std::nullopt;
    }
    return std::get<actors::Request>(request).priority;
  };
  REQUIRE(priority_of(0, 100) == 100);
  REQUIRE(priority_of(99, 100) == 100);
  REQUIRE(priority_of(101, 100) == 101);
  REQUIRE(priority_of(-10, -10) == -10);
  REQUIRE(priority_of(0, -10) == 0);
  REQUIRE_FALSE(priority_of(-11, -10));
  REQUIRE_FALSE(priority_of(-1, 100));
}

TEST_CASE("a rule for a user does not let the user in") {
  if (!may_be_others()) return;
  ServerOptions options = with_rules({rule_for({23456}, {.name = "guests"})});
  FakeServer server(options);
  server.let_others_reach();
  REQUIRE(knock_as(23456, server.path()) == Knock::failed);  // the file's mode says no
  options.allow_uids = {23456};
  REQUIRE(server.server->reconfigure(options));
  wait_for_mode(server.path(), 0666);
  const AsUser guest(23456);
  RawClient client(server.path());
  REQUIRE(client.hello().tenant() == "guests");
}

}  // namespace
}  // namespace troupe::ipc
