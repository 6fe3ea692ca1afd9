// HTTP over TCP: who may listen, which hosts and origins are let in.
#include "ipc/http/authenticator.h"
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

TEST_CASE("tcp: without keys a server listens on this machine only, and only if told to") {
  CHECK(refused_to_bind({.listen = {kAnyPort}}).message.find("--no-auth") != std::string::npos);
  CHECK(
      refused_to_bind({.listen = {*parse_tcp_address("tcp://0.0.0.0:0")}, .no_auth = true}).message.find("127.0.0.1") !=
      std::string::npos);
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

TEST_CASE("tcp: connections over TCP are limited together, and leave room for the Unix socket") {
  ServerOptions options = over_tcp();
  options.max_connections_per_uid = 2;
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient first(address), second(address);
  for (HttpClient* client : {&first, &second}) {
    client->get("/health");
    CHECK(client->expect().status == 200);
  }
  HttpClient third(address);
  const HttpResponse refused = third.expect();
  CHECK(refused.status == 429);
  CHECK(refused.body.find("over TCP") != std::string::npos);
  HttpClient local(server.path());
  local.get("/health");
  CHECK(local.expect().status == 200);
}
