// HTTP over TCP: which servers may listen, which clients, hosts and origins are let in.
#include "ipc/http/authenticator.h"
#include "tests/ipc/connect_as.h"
#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"

using namespace troupe;
using namespace troupe::ipc;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;

namespace {

const TcpAddress kAnyPort = *parse_tcp_address("tcp://127.0.0.1:0");

ServerOptions over_tcp(http::BorderRules border = {}) {
  ServerOptions options;
  options.http.listen = {kAnyPort};
  options.http.no_auth = true;
  options.http.border = std::move(border);
  return options;
}

Error refused_to_bind(HttpOptions http) {
  TempDir dir;
  ServerOptions options;
  options.socket_path = dir / "t.sock";
  options.http = std::move(http);
  const auto server = Server::bind(std::move(options));
  REQUIRE_FALSE(server);
  return server.error();
}

// Asks for the tenant "web" if the client names it.
class OneKey final : public http::Authenticator {
 public:
  void decide(const http::RequestHead& head, const std::string& address, std::function<void(Decision)> done) override {
    CHECK(address == "127.0.0.1");
    const std::string* given = head.find("authorization");
    if (given && *given == "Bearer secret") return done(scheduler::Tenant{.id = scheduler::named_tenant("web")});
    // From another thread, as a slow check of a key.
    std::thread([done = std::move(done)] {
      done(api::ApiError{.status = 401, .message = "no such key", .type = "authentication_error"});
    }).detach();
  }
};

}  // namespace

TEST_CASE("tcp: an address is read and written") {
  for (const char* text : {"tcp://127.0.0.1:8080", "tcp://[::1]:0", "tcp://0.0.0.0:65535"})
    CHECK(parse_tcp_address(text)->text() == text);
  CHECK(parse_tcp_address("tcp://localhost:1")->text() == "tcp://127.0.0.1:1");
  for (const char* text :
       {"", "127.0.0.1:80", "tcp://127.0.0.1", "tcp://:80", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:", "tcp://a.example:80", "tcp://::1:80", "http://[::1]:80"}) {
    INFO(text);
    const auto address = parse_tcp_address(text);
    REQUIRE_FALSE(address);
    CHECK(address.error().message.find("tcp://127.0.0.1:8080") != std::string::npos);
  }
  CHECK(parse_tcp_address("tcp://127.9.9.9:1")->is_loopback());
  CHECK(parse_tcp_address("tcp://[::1]:1")->is_loopback());
  CHECK_FALSE(parse_tcp_address("tcp://[::2]:1")->is_loopback());
  CHECK_FALSE(parse_tcp_address("tcp://10.0.0.1:1")->is_loopback());
}

TEST_CASE("tcp: without keys a server listens on this machine only") {
  for (const bool no_auth : {false, true}) {
    const Error error = refused_to_bind({.listen = {*parse_tcp_address("tcp://0.0.0.0:0")}, .no_auth = no_auth});
    CHECK(error.message.find("127.0.0.1") != std::string::npos);
  }
}

// The server asks the kernel.
ServerOptions by_kernel() {
  ServerOptions options;
  options.http.listen = {kAnyPort};
  return options;
}

std::unique_ptr<HttpClient> connect_as(std::uint32_t uid, const FakeServer& server) {
  std::optional<AsUser> user;
  if (uid != ::geteuid()) user.emplace(uid);
  return std::make_unique<HttpClient>(server.server->tcp_addresses().at(0));
}

TEST_CASE("tcp: without keys the kernel says which user is calling, with the rights that it has on the Unix socket") {
  constexpr std::uint32_t kGuest = 23456, kStranger = 23457, kMember = 65534;
  ServerOptions options = by_kernel();
  options.allow_uids = {kGuest};
  options.allow_gids = {65534};  // of the user "nobody", by the system's database
  auto policy = std::make_shared<scheduler::TenantPolicy>();
  policy->name = "web";
  options.tenants = TenantRules({{.uids = {kMember}, .trusted_proxy = true, .policy = policy}});
  FakeServer server(std::move(options));
  std::size_t submitted = 0;
  const auto tenant_of_request = [&](HttpClient& client, const std::string& fields = {}) {
    client.post("/v1/completions", R"({"model":"fake","prompt":"x"})", fields);
    const auto got = server.gateway.wait_submitted(submitted++);
    got.sink->end(end_of(scheduler::Outcome::eos));
    CHECK(client.expect().status == 200);
    return got.request.tenant;
  };
  const scheduler::Tenant own = tenant_of_request(*connect_as(::geteuid(), server));
  CHECK(own.id == TenantId{::geteuid()});
  CHECK(own.is_owner);
  if (!may_be_others()) return;
  const scheduler::Tenant guest = tenant_of_request(*connect_as(kGuest, server));
  CHECK(guest.id == TenantId{kGuest});
  CHECK_FALSE(guest.is_owner);
  const auto member = connect_as(kMember, server);
  CHECK(tenant_of_request(*member).id == scheduler::named_tenant("web"));
  CHECK(tenant_of_request(*member, "Troupe-Tenant: 4711\r\n").id == TenantId{4711});  // a trusted proxy
  const auto stranger = connect_as(kStranger, server);
  stranger->post("/v1/completions", R"({"model":"fake","prompt":"x"})");
  const HttpResponse refused = stranger->expect();
  CHECK(refused.status == 403);
  CHECK(refused.body.find("uid 23457 may not use this server") != std::string::npos);
  CHECK(stranger->rest().empty());
  const auto health = connect_as(kStranger, server);
  health->get("/health");
  CHECK(health->expect().status == 403);
}

TEST_CASE("tcp: connections of strangers take none of a user's places, and each user has those of its own") {
  if (!may_be_others()) return;
  ServerOptions options = by_kernel();
  options.limits.max_connections_per_uid = 2;
  options.allow_uids = {23456};
  FakeServer server(std::move(options));
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (const std::uint32_t uid : {23457u, 23458u, 23456u, 23456u, 0u, 0u}) clients.push_back(connect_as(uid, server));
  for (std::size_t i = 2; i < clients.size(); ++i) {
    clients[i]->get("/health");
    CHECK(clients[i]->expect().status == 200);
    clients[i]->post("/v1/completions", R"({"model":"fake","prompt":"x"})");  // in use: it makes no room for others
    server.gateway.wait_submitted(i - 2);
  }
  CHECK(connect_as(23459, server)->expect().status == 429);
  CHECK(connect_as(23456, server)->expect().status == 429);
}

TEST_CASE("tcp: a client that the kernel does not name is refused, unless a rule takes such clients") {
  auto policy = std::make_shared<scheduler::TenantPolicy>();
  policy->name = "containers";
  for (const bool has_rule : {false, true}) {
    INFO("with a rule: " << has_rule);
    TempDir dir;
    FakeGateway gateway;
    ServerOptions options = by_kernel();
    options.socket_path = dir / "t.sock";
    if (has_rule) options.tenants = TenantRules({{.is_tcp = true, .policy = policy}});
    const auto server = Server::bind(std::move(options));
    REQUIRE(server);
    // Half closed before it is accepted: the kernel names the maker of an established socket only.
    HttpClient client((*server)->tcp_addresses().at(0));
    REQUIRE(client.get("/v1/models", "Troupe-Tenant: 4711\r\n"));
    client.finish();
    (*server)->start(gateway);
    const HttpResponse answer = client.expect();
    CHECK(answer.status == (has_rule ? 200 : 403));
    if (!has_rule) CHECK(answer.body.find("tcp = true") != std::string::npos);
    (*server)->stop();
  }
}

TEST_CASE("tcp: an address in use is said to be") {
  FakeServer server(over_tcp());
  const Error error = refused_to_bind({.listen = server.server->tcp_addresses(), .no_auth = true});
  CHECK(error.code == ErrorCode::busy);
  CHECK(error.message.find("another port") != std::string::npos);
}

TEST_CASE("tcp: requests are answered as on the Unix socket, for a tenant that is no owner") {
  FakeServer server(over_tcp());
  HttpClient client(server.server->tcp_addresses().at(0));
  client.get("/health");
  CHECK(client.expect().status == 200);
  client.post("/v1/completions", R"({"model":"fake","prompt":"x"})");
  const auto submitted = server.gateway.wait_submitted(0);
  CHECK(submitted.request.tenant.id == TenantId{::geteuid()});
  CHECK_FALSE(submitted.request.tenant.is_owner);
  submitted.sink->end(end_of(scheduler::Outcome::eos));
  CHECK(client.expect().status == 200);
  client.get("/v1/models", "Troupe-Tenant: web\r\n");  // means nothing here
  CHECK(client.expect().status == 200);
}

TEST_CASE("tcp: other hosts and origins are refused; over the Unix socket no browser comes") {
  FakeServer server(over_tcp({.allow_hosts = {"my.box"}, .cors_origins = {"https://app.example"}}));
  const auto status = [](HttpClient& client, const std::string& host, const std::string& fields) {
    client.send("GET /health HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n");
    return client.expect();
  };
  HttpClient tcp(server.server->tcp_addresses().at(0));
  CHECK(status(tcp, "localhost:1234", {}).status == 200);
  CHECK(status(tcp, "my.box", {}).status == 200);
  CHECK(status(tcp, "evil.example", {}).status == 421);
  CHECK(status(tcp, "localhost", "Origin: http://localhost\r\n").status == 200);
  CHECK(status(tcp, "localhost", "Origin: https://evil.example\r\n").status == 403);
  const HttpResponse listed = status(tcp, "localhost", "Origin: https://app.example\r\n");
  CHECK(listed.status == 200);
  CHECK(listed.field("Access-Control-Allow-Origin") == "https://app.example");
  tcp.get("/v1/completions",
          "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n"
          "Access-Control-Request-Headers: content-type\r\n",
          "OPTIONS");
  const HttpResponse preflight = tcp.expect();
  CHECK(preflight.status == 204);
  CHECK(preflight.field("Access-Control-Allow-Headers") == "content-type");
  HttpClient unix_socket(server.path());
  CHECK(status(unix_socket, "evil.example", "Origin: https://evil.example\r\n").status == 200);
}

TEST_CASE("tcp: an authenticator decides the tenant of each request") {
  ServerOptions options = over_tcp();
  options.http.no_auth = false;
  options.http.authenticator = std::make_shared<OneKey>();
  FakeServer server(std::move(options));
  HttpClient client(server.server->tcp_addresses().at(0));
  client.get("/health");  // load balancers have no key
  CHECK(client.expect().status == 200);
  client.get("/v1/models");
  const HttpResponse refused = client.expect();
  CHECK(refused.status == 401);
  CHECK(refused.field("WWW-Authenticate") == "Bearer");
  CHECK(refused.body.find("no such key") != std::string::npos);
  client.post("/v1/completions", R"({"model":"fake","prompt":"x"})", "Authorization: Bearer secret\r\n");
  CHECK(server.gateway.wait_submitted(0).request.tenant.id == scheduler::named_tenant("web"));
}

TEST_CASE(
    "tcp: requests beyond a user's places wait in line, in their order, and are answered when others have ended") {
  FakeServer server(over_tcp());
  server.gateway.room.waiting = 2;
  const TcpAddress address = server.server->tcp_addresses().at(0);
  std::vector<std::unique_ptr<HttpClient>> clients;
  const auto ask = [&](const std::string& prompt) {
    clients.push_back(std::make_unique<HttpClient>(address));
    clients.back()->post("/v1/completions", R"({"model":"fake","prompt":")" + prompt + R"("})");
  };
  // number: of the request at the gateway; client: whose it is.
  const auto end = [&](std::size_t number, std::size_t index) {
    actors::End over;
    over.outcome = scheduler::Outcome::length;
    server.gateway.wait_submitted(number).sink->end(std::move(over));
    CHECK(clients[index]->expect().status == 200);
  };
  ask("0"), server.gateway.wait_submitted(0);
  ask("1"), server.gateway.wait_submitted(1);
  ask("2"), ask("3"), ask("4");
  // The owner has room of its own, and what takes no work needs none.
  HttpClient other(server.path());
  other.post("/v1/completions", R"({"model":"fake","prompt":"other"})");
  CHECK(std::get<std::string>(server.gateway.wait_submitted(2).request.prompt) == "other");
  HttpClient question(address);
  question.get("/health");
  CHECK(question.expect().status == 200);
  CHECK(server.gateway.num_submitted() == 3);
  other.hang_up();  // it has the same tenant here, and leaves its place
  server.gateway.wait_cancelled(1);
  end(0, 0);
  const auto prompt_of = [&](std::size_t number) {
    return std::get<std::string>(server.gateway.wait_submitted(number).request.prompt);
  };
  const std::string next = prompt_of(3);  // the server may have read any of the three first
  const std::string gone = next == "2" ? "3" : "2", last = next == "4" ? "3" : "4";
  clients[std::stoul(gone)]->hang_up();
  end(1, 1);
  // Whether it has left the line or the gateway, the last one comes.
  const std::string fifth = prompt_of(4);
  CHECK((fifth == gone ? prompt_of(5) : fifth) == last);
}

TEST_CASE("tcp: connections over TCP are limited together, and leave room for the Unix socket") {
  ServerOptions options = over_tcp();
  options.limits.max_connections_per_uid = 2;
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient first(address), second(address);
  for (HttpClient* client : {&first, &second}) {
    client->get("/health");
    CHECK(client->expect().status == 200);
    client->post("/v1/completions", R"({"model":"fake","prompt":"x"})");  // in use: it makes no room for others
    server.gateway.wait_submitted(client == &first ? 0 : 1);
  }
  HttpClient third(address);
  const HttpResponse refused = third.expect();
  CHECK(refused.status == 429);
  CHECK(refused.body.find("over TCP") != std::string::npos);
  HttpClient local(server.path());
  local.get("/health");
  CHECK(local.expect().status == 200);
}
