// Keys over TCP, with TLS and without, against a server with a fake gateway.
#include "ipc/http/key_authenticator.h"
#include "ipc/http/tls_front.h"
#include "ipc/keys/key_text.h"
#include "tests/ipc/connect_as.h"
#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"
#include "tests/ipc/http/tls_client.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

#include <functional>
#include <vector>

using namespace troupe;
using namespace troupe::ipc;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;
using http::KeyAuthenticator;

namespace {

const std::string kBody = R"({"model":"fake","prompt":"x"})";

struct MadeKey {
  std::string text = draw_key();
  ServedKey key;
};

MadeKey key_named(const std::string& name) {
  MadeKey made;
  const auto parts = split_key(made.text);
  made.key = {.name = name, .id = std::string(parts->id)};
  fill_random(made.key.salt);
  made.key.hash = *scrypt(parts->secret, made.key.salt);
  made.key.tenant = {.id = scheduler::named_tenant("key:" + name)};
  return made;
}

ServerOptions with_keys(std::vector<ServedKey> keys) {
  ServerOptions options;
  options.http.listen = {*parse_tcp_address("tcp://127.0.0.1:0")};
  options.http.authenticator = std::make_shared<KeyAuthenticator>(std::move(keys));
  return options;
}

http::RequestHead head_with(std::vector<http::Field> fields) {
  http::RequestHead head;
  head.fields = std::move(fields);
  return head;
}

}  // namespace

TEST_CASE("a key is taken from either field, without regard to the scheme's case") {
  CHECK(http::presented_key(head_with({{"authorization", "Bearer trp_x"}})) == "trp_x");
  CHECK(http::presented_key(head_with({{"authorization", "bearer  trp_x "}})) == "trp_x");
  CHECK(http::presented_key(head_with({{"x-api-key", "trp_y"}})) == "trp_y");
  CHECK(http::presented_key(head_with({{"x-api-key", "trp_y"}, {"authorization", "Bearer trp_x"}})) == "trp_x");
  CHECK(http::presented_key(head_with({{"x-api-key", "trp_y"}, {"authorization", "Basic dTpw"}})) == "trp_y");
  CHECK(http::presented_key(head_with({{"authorization", "Bearer"}})).empty());
  CHECK(http::presented_key(head_with({{"authorization", "Bearer  "}})).empty());
  CHECK(http::presented_key(head_with({})).empty());
}

TEST_CASE("keys: each request counts for its key's tenant, and one without a key for none") {
  const MadeKey web = key_named("web"), ci = key_named("ci");
  FakeServer server(with_keys({web.key, ci.key}));
  HttpClient client(server.server->tcp_addresses().at(0));
  client.post("/v1/completions", kBody);
  const HttpResponse without = client.expect();
  CHECK(without.status == 401);
  CHECK(without.field("WWW-Authenticate") == "Bearer");
  CHECK_THAT(without.body, Catch::Matchers::Contains("Authorization: Bearer KEY"));
  HttpClient again(server.server->tcp_addresses().at(0));  // the body was not read
  std::size_t submitted = 0;
  for (const auto& [fields, name] :
       {std::pair("Authorization: Bearer " + web.text, "key:web"), std::pair("x-api-key: " + ci.text, "key:ci"),
        std::pair("Authorization: Bearer " + web.text, "key:web")}) {
    again.post("/v1/completions", kBody, fields + "\r\n");
    const auto request = server.gateway.wait_submitted(submitted++);
    CHECK(request.request.tenant.id == scheduler::named_tenant(name));
    CHECK_FALSE(request.request.tenant.is_owner);
    request.sink->end(end_of(scheduler::Outcome::eos));
    CHECK(again.expect().status == 200);
  }
  again.get("/v1/models", "Authorization: Bearer " + draw_key() + "\r\n");
  const HttpResponse wrong = again.expect();
  CHECK(wrong.status == 401);
  CHECK_THAT(wrong.body, Catch::Matchers::Contains("invalid_api_key"));
  again.get("/health");
  CHECK(again.expect().status == 200);
}

TEST_CASE("keys: an expired one and too many guesses are told apart from a wrong one") {
  MadeKey old = key_named("old");
  old.key.expires = 1'000;
  const MadeKey good = key_named("good");
  FakeServer server(with_keys({old.key, good.key}));
  HttpClient client(server.server->tcp_addresses().at(0));
  const auto ask = [&](const std::string& key) {
    client.get("/v1/models", "x-api-key: " + key + "\r\n");
    return client.expect();
  };
  CHECK(ask(good.text).status == 200);
  const HttpResponse expired = ask(old.text);
  CHECK(expired.status == 401);
  CHECK_THAT(expired.body, Catch::Matchers::Contains("the key old has expired"));
  HttpResponse last;
  for (int i = 0; i <= static_cast<int>(kMaxGuesses) && last.status != 429; ++i)
    last = ask("guess" + std::to_string(i));
  CHECK(last.status == 429);
  CHECK_FALSE(last.field("Retry-After").empty());
  CHECK(ask(good.text).status == 200);
}

// A request with this key: its status.
int status_with(HttpClient& client, const std::string& key) {
  client.get("/v1/models", "x-api-key: " + key + "\r\n");
  return client.expect().status;
}

std::string with_wrong_secret(const MadeKey& key) {
  return key.text.substr(0, key.text.size() - kKeySecretChars) + random_base62(kKeySecretChars);
}

TEST_CASE("keys: connections without a right key keep no place from those with one, whatever they do") {
  constexpr std::uint32_t kPlaces = 8;
  struct Kind {
    const char* name;
    std::function<void(HttpClient&)> act;
  };
  const Kind kinds[] = {
      {"silent", [](HttpClient&) {}},
      {"half a head", [](HttpClient& client) { client.send("GET / HTTP/1.1\r\nHost: "); }},
      {"the page, and more", [](HttpClient& client) { client.get("/"), client.expect(); }},
      {"the page, unread",
       [](HttpClient& client) {
         for (int i = 0; i < 100; ++i) client.get("/");
       }},
      {"a wrong key", [](HttpClient& client) { status_with(client, draw_key()); }},
  };
  for (const Kind& kind : kinds) {
    INFO(kind.name);
    const MadeKey web = key_named("web");
    ServerOptions options = with_keys({web.key});
    options.limits.max_connections_per_uid = kPlaces;
    FakeServer server(std::move(options));
    const TcpAddress address = server.server->tcp_addresses().at(0);
    std::vector<std::unique_ptr<HttpClient>> strangers, holders;
    const auto add_strangers = [&] {
      for (std::uint32_t i = 0; i < 3 * kPlaces; ++i)
        kind.act(*strangers.emplace_back(std::make_unique<HttpClient>(address)));
    };
    add_strangers();
    for (std::uint32_t i = 0; i < kPlaces; ++i) {
      holders.push_back(std::make_unique<HttpClient>(address));
      REQUIRE(status_with(*holders.back(), web.text) == 200);
    }
    add_strangers();
    for (const auto& holder : holders) REQUIRE(status_with(*holder, web.text) == 200);
    // One more makes the one go that has waited longest, as on the Unix socket.
    HttpClient more(address);
    REQUIRE(status_with(more, web.text) == 200);
    REQUIRE(holders.front()->rest().empty());
  }
}

TEST_CASE("keys: questions without a key take nothing from the rate of those with one") {
  const MadeKey web = key_named("web");
  ServerOptions options = with_keys({web.key});
  options.limits.max_questions_per_second = 1;
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient stranger(address), holder(address);
  int status = 200;
  for (int i = 0; i < 20 && status == 200; ++i) {
    stranger.get("/health");
    status = stranger.expect().status;
  }
  CHECK(status == 429);
  CHECK(status_with(holder, web.text) == 200);
}

TEST_CASE("keys: a connection is kept for the time to a greeting until it shows a right key, and after a wrong one") {
  const MadeKey web = key_named("web");
  ServerOptions options = with_keys({web.key});
  options.limits.hello_timeout = std::chrono::seconds(1);
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient holder(address);
  CHECK(status_with(holder, web.text) == 200);
  HttpClient stranger(address);
  stranger.get("/health");
  CHECK(stranger.expect().status == 200);
  CHECK(stranger.rest().empty());  // reads to the end
  HttpClient revoked(address);
  CHECK(status_with(revoked, web.text) == 200);
  CHECK(status_with(revoked, with_wrong_secret(web)) == 401);
  CHECK(revoked.rest().empty());
  CHECK(status_with(holder, web.text) == 200);
}

TEST_CASE("keys: without a right key no large body is read") {
  const MadeKey web = key_named("web");
  FakeServer server(with_keys({web.key}));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  const std::string head = "POST /open HTTP/1.1\r\nHost: localhost\r\n";
  HttpClient announced(address), in_chunks(address), holder(address);
  announced.send(head + "Content-Length: 1000000\r\n\r\n");
  CHECK(announced.expect().status == 413);
  in_chunks.send(head + "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + std::string(0x20000, 'x') + "\r\n");
  CHECK(in_chunks.expect().status == 413);
  holder.post("/v1/completions", R"({"model":"fake","prompt":")" + std::string(1'000'000, 'x') + "\"}",
              "x-api-key: " + web.text + "\r\n");
  server.gateway.wait_submitted(0);
}

TEST_CASE("keys: of connections that stay without a key all but a few end after a while") {
  const MadeKey web = key_named("web");
  ServerOptions options = with_keys({web.key});
  options.limits.max_connections_per_uid = 2;
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient first(address), second(address);
  for (HttpClient* client : {&first, &second}) {
    client->get("/health");
    REQUIRE(client->expect().status == 200);
  }
  CHECK(first.rest().empty());  // before its keep-alive is over
  second.get("/health");
  CHECK(second.expect().status == 200);
}

TEST_CASE("keys: a right key is accepted at its first use while others guess from the same address") {
  const MadeKey web = key_named("web"), ci = key_named("ci");
  FakeServer server(with_keys({web.key, ci.key}));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient first(address);
  int status = 401;
  for (int i = 0; i < 2 * static_cast<int>(kMaxGuesses) && status == 401; ++i) status = status_with(first, "guess");
  CHECK(status == 429);
  std::vector<std::unique_ptr<HttpClient>> guessers;
  for (const bool has_id : {false, true, false, true}) {
    guessers.push_back(std::make_unique<HttpClient>(address));
    for (int i = 0; i < 50; ++i)
      guessers.back()->get("/v1/models", "x-api-key: " + (has_id ? with_wrong_secret(web) : draw_key()) + "\r\n");
  }
  for (const MadeKey& key : {web, ci}) {
    HttpClient client(address);
    CHECK(status_with(client, key.text) == 200);
  }
  CHECK(status_with(first, with_wrong_secret(ci)) == 429);
}

TEST_CASE("keys: beside the page's key alone, the kernel's word counts for clients without it") {
  auto tab_key = std::make_unique<TabKey>();
  const std::string once = tab_key->once();
  ServerOptions options;
  options.http.listen = {*parse_tcp_address("tcp://127.0.0.1:0")};
  options.http.authenticator = std::make_shared<KeyAuthenticator>(
      std::vector<ServedKey>(), std::move(tab_key), scheduler::Tenant{.id = scheduler::named_tenant("page")});
  options.http.kernel_names = true;
  FakeServer server(std::move(options));
  HttpClient client(server.server->tcp_addresses().at(0));
  client.send("POST /open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nAuthorization: Bearer " + once +
              "\r\n\r\n");
  const HttpResponse opened = client.expect();
  REQUIRE(opened.status == 200);
  const std::size_t at = opened.body.find("tab_");
  const std::string key = opened.body.substr(at, opened.body.find('"', at) - at);
  std::size_t submitted = 0;
  const auto tenant_with = [&](const std::string& fields) {
    client.post("/v1/completions", kBody, fields);
    const auto request = server.gateway.wait_submitted(submitted++);
    request.sink->end(end_of(scheduler::Outcome::eos));
    CHECK(client.expect().status == 200);
    return request.request.tenant;
  };
  for (int round = 0; round < 2; ++round) {  // on one connection, in turns
    const scheduler::Tenant page = tenant_with("Authorization: Bearer " + key + "\r\n");
    CHECK(page.id == scheduler::named_tenant("page"));
    CHECK_FALSE(page.is_owner);
    for (const char* fields : {"", "Authorization: Bearer any\r\n", "x-api-key: none\r\n"}) {
      const scheduler::Tenant own = tenant_with(fields);
      CHECK(own.id == TenantId{::geteuid()});
      CHECK(own.is_owner);
    }
  }
  client.get("/v1/models");
  CHECK(client.expect().status == 200);
}

TEST_CASE("keys: a client that no rule lets in may come with the page's key, and with nothing else") {
  if (!may_be_others()) return;
  auto tab_key = std::make_unique<TabKey>();
  const std::string once = tab_key->once();
  ServerOptions options;
  options.http.listen = {*parse_tcp_address("tcp://127.0.0.1:0")};
  options.http.authenticator = std::make_shared<KeyAuthenticator>(
      std::vector<ServedKey>(), std::move(tab_key), scheduler::Tenant{.id = scheduler::named_tenant("page")});
  options.http.kernel_names = true;
  FakeServer server(std::move(options));
  std::string key = "none";
  const auto status_of = [&](const std::string& request, const std::string& with) {
    std::unique_ptr<HttpClient> stranger;
    {
      const AsUser user(23457);
      stranger = std::make_unique<HttpClient>(server.server->tcp_addresses().at(0));
    }
    stranger->send(request + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" +
                   (with.empty() ? "" : "Authorization: Bearer " + with + "\r\n") + "\r\n");
    const HttpResponse answer = stranger->expect();
    if (const std::size_t at = answer.body.find("tab_"); at != std::string::npos)
      key = answer.body.substr(at, answer.body.find('"', at) - at);
    return answer.status;
  };
  CHECK(status_of("GET /v1/models", "") == 403);
  CHECK(status_of("GET /health", "") == 403);
  CHECK(status_of("GET /v1/models", "tab_wrong") == 401);
  CHECK(status_of("GET /", "") == 200);
  CHECK(status_of("POST /open", once) == 200);
  CHECK(status_of("GET /v1/models", key) == 200);
}

TEST_CASE("keys: on the Unix socket they mean nothing, unless a trusted proxy passes one on") {
  const MadeKey web = key_named("web");
  for (const bool is_proxy : {false, true}) {
    ServerOptions options = with_keys({web.key});
    options.tenants = TenantRules({{.uids = {::geteuid()},
                                    .trusted_proxy = is_proxy,
                                    .policy = std::make_shared<const scheduler::TenantPolicy>()}});
    FakeServer server(std::move(options));
    HttpClient client(server.path());
    client.post("/v1/completions", kBody, "Authorization: Bearer " + web.text + "\r\n");
    const auto request = server.gateway.wait_submitted(0);
    CHECK(request.request.tenant.id == (is_proxy ? scheduler::named_tenant("key:web") : TenantId{::geteuid()}));
    CHECK(request.request.tenant.is_owner == !is_proxy);
    request.sink->end(end_of(scheduler::Outcome::eos));
    CHECK(client.expect().status == 200);
    client.get("/v1/models", "Authorization: Bearer wrong\r\n");
    CHECK(client.expect().status == (is_proxy ? 401 : 200));
  }
}

TEST_CASE("TLS: an address of the network needs it, and keys") {
  TempDir dir;
  const auto error_of = [&](HttpOptions http) {
    ServerOptions options;
    options.socket_path = dir / "t.sock";
    options.http = std::move(http);
    options.http.listen = {*parse_tcp_address("tcp://0.0.0.0:0")};
    const auto server = Server::bind(std::move(options));
    return server ? Error{ErrorCode::io, ""} : server.error();
  };
  const Error plain = error_of({.authenticator = std::make_shared<KeyAuthenticator>(std::vector<ServedKey>{})});
  CHECK(plain.code == ErrorCode::bad_config);
  CHECK_THAT(plain.message, Catch::Matchers::Contains("--tls-cert"));
}

TEST_CASE("TLS: requests are answered and streamed as without it") {
  const troupe::test::TempFolder folder;
  if (!troupe::test::make_certificate(folder.path("."), "server"))
    return troupe::test::skip("the openssl command is not installed");
  const MadeKey web = key_named("web");
  ServerOptions options = with_keys({web.key});
  auto tls = http::TlsFront::start({.certificate = folder.path("server.pem"), .key = folder.path("server.key")});
  REQUIRE(tls);
  options.http.tls = std::move(*tls);
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  troupe::test::TlsClient client{FileDescriptor(connect_to(address))};
  REQUIRE(client.is_connected());
  const std::string streamed = R"({"model":"fake","prompt":"x","stream":true})";
  REQUIRE(client.write("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nx-api-key: " +
                       web.text + "\r\nContent-Length: " + std::to_string(streamed.size()) + "\r\n\r\n" + streamed));
  const auto request = server.gateway.wait_submitted(0);
  CHECK(request.request.tenant.id == scheduler::named_tenant("key:web"));
  request.sink->tokens(run_of(0, {1}, "hello"));
  std::string got = client.read();
  while (!Catch::contains(got, "hello")) got += client.read();
  request.sink->end(end_of(scheduler::Outcome::eos));
  got += client.read_to_end();
  CHECK(client.was_told_of_end());
  CHECK_THAT(got, Catch::Matchers::StartsWith("HTTP/1.1 200") && Catch::Matchers::Contains("[DONE]"));
}

TEST_CASE("TLS: a handshake that stops, and one that is none, end the connection") {
  const troupe::test::TempFolder folder;
  if (!troupe::test::make_certificate(folder.path("."), "server"))
    return troupe::test::skip("the openssl command is not installed");
  ServerOptions options = with_keys({key_named("web").key});
  auto tls = http::TlsFront::start({.certificate = folder.path("server.pem"),
                                    .key = folder.path("server.key"),
                                    .handshake_timeout = std::chrono::milliseconds(200)});
  REQUIRE(tls);
  options.http.tls = std::move(*tls);
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient silent(address), plain(address);
  plain.get("/health");
  CHECK(plain.expect().status == 400);  // without TLS, of TLS alone
  CHECK(plain.rest().empty());
  CHECK(silent.rest().empty());  // after the time for a handshake
}

TEST_CASE("TLS: a client that goes cancels its request") {
  const troupe::test::TempFolder folder;
  if (!troupe::test::make_certificate(folder.path("."), "server"))
    return troupe::test::skip("the openssl command is not installed");
  ServerOptions options;
  options.http.listen = {*parse_tcp_address("tcp://127.0.0.1:0")};
  options.http.no_auth = true;
  auto tls = http::TlsFront::start({.certificate = folder.path("server.pem"), .key = folder.path("server.key")});
  REQUIRE(tls);
  options.http.tls = std::move(*tls);
  FakeServer server(std::move(options));
  {
    troupe::test::TlsClient client{FileDescriptor(connect_to(server.server->tcp_addresses().at(0)))};
    REQUIRE(client.write("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                         std::to_string(kBody.size()) + "\r\n\r\n" + kBody));
    server.gateway.wait_submitted(0);
  }
  server.gateway.wait_cancelled(1);
}
