// troupe serve --listen: which clients are let in over TCP, with keys and certificates that change while it serves.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/cli/process.h"
#include "tests/ipc/http/tls_client.h"
#include "tests/support/skip.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using troupe::FileDescriptor;

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port that nothing listens on.
std::uint16_t free_port() {
  const FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

FileDescriptor connect_to_port(std::uint16_t port) {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

std::string request_of(const std::string& line, const std::string& key) {
  return line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
         (key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") + "\r\n";
}

std::string models_request(const std::string& key) { return request_of("GET /v1/models", key); }

// The answer to a request without a body, with this key.
std::string ask(std::uint16_t port, const std::string& line, const std::string& key) {
  const FileDescriptor fd = connect_to_port(port);
  const std::string request = request_of(line, key);
  REQUIRE(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::string answer;
  char part[4096];
  for (ssize_t size = 0; (size = ::recv(fd.get(), part, sizeof(part), 0)) > 0;)
    answer.append(part, static_cast<std::size_t>(size));
  return answer;
}

std::string ask_models(std::uint16_t port, const std::string& key) { return ask(port, "GET /v1/models", key); }

std::string add_key(const std::string& file, const std::string& name, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"key", "add", name, "--keys-file", file};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Finished made = invoke(arguments);
  INFO(made.err);
  REQUIRE(made.code == 0);
  return made.out.substr(0, made.out.size() - 1);
}

std::string tcp_at(std::uint16_t port) { return "tcp://127.0.0.1:" + std::to_string(port); }

}  // namespace

TEST_CASE("serve --listen: what would let strangers in does not start, and says what to do") {
  const TempFolder folder;
  const std::string keys = folder.path("keys"), config = folder.path("troupe.toml");
  add_key(keys, "ci");
  std::ofstream(folder.path("none")) << "troupe-keys 1\n";
  std::filesystem::permissions(folder.path("none"), std::filesystem::perms(0600));
  std::ofstream(config) << "[[tenant]]\nname = \"web\"\nuser = \"root\"\n";
  const std::string of_web = folder.path("of-web"), here = tcp_at(0), everywhere = "tcp://0.0.0.0:0";
  add_key(of_web, "w", {"--tenant", "web", "--config", config});
  struct Wrong {
    std::vector<std::string> arguments;
    std::string says;
  };
  const Wrong wrongs[] = {
      {{"--listen", here, "--keys-file", folder.path("missing")}, "troupe key add NAME"},
      {{"--listen", here, "--keys-file", folder.path("none")}, "troupe key add NAME"},
      {{"--listen", everywhere, "--no-auth"}, "--no-auth is for addresses of this machine only"},
      {{"--listen", everywhere, "--keys-file", keys}, "--tls-cert"},
      {{"--listen", here, "--keys-file", keys, "--tls-cert", "x.pem"}, "belong together"},
      {{"--listen", here, "--keys-file", keys, "--tls-cert", keys, "--tls-key", keys}, "as a certificate"},
      {{"--listen", here, "--keys-file", of_web}, "is named web"},
      {{"--open"}, "add --listen tcp://"},
  };
  for (const Wrong& wrong : wrongs) {
    std::vector<std::string> arguments{"serve", "--socket", folder.path("t.sock")};
    arguments.insert(arguments.end(), wrong.arguments.begin(), wrong.arguments.end());
    const Finished finished = invoke(arguments);
    INFO(finished.err);
    CHECK(finished.code == 78);
    CHECK_THAT(finished.err, Contains(wrong.says));
  }
}

TEST_CASE("serve --listen: keys are made and revoked while it serves, and no log has one") {
  const TempFolder folder;
  const std::string file = folder.path("keys");
  const std::string first = add_key(file, "first");
  const std::uint16_t port = free_port();
  ServerProcess server({"--listen", tcp_at(port), "--keys-file", file, "--log-level", "trace"});
  CHECK_THAT(ask_models(port, first), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(ask_models(port, ""), StartsWith("HTTP/1.1 401"));
  const std::string second = add_key(file, "second");
  CHECK_THAT(ask_models(port, second), StartsWith("HTTP/1.1 401"));
  server.process().signal(SIGHUP);
  REQUIRE(server.process().wait_for_err("reload: 2 keys"));
  CHECK_THAT(ask_models(port, second), StartsWith("HTTP/1.1 200"));
  REQUIRE(invoke({"key", "revoke", "first", "--keys-file", file}).code == 0);
  server.process().signal(SIGHUP);
  REQUIRE(server.process().wait_for_err("reload: 1 keys"));
  CHECK_THAT(ask_models(port, first), StartsWith("HTTP/1.1 401"));
  // A line that is wrong holds up neither a new key nor a revocation.
  const std::string third = add_key(file, "third");
  std::ifstream written(file);
  const std::string rows{std::istreambuf_iterator<char>(written), {}};
  std::ofstream(file, std::ios::app) << "key of nothing\n";
  server.process().signal(SIGHUP);
  REQUIRE(server.process().wait_for_err("keys:4: a field is FIELD=VALUE"));
  REQUIRE(server.process().wait_for_err("reload: 2 keys"));
  CHECK_THAT(ask_models(port, third), StartsWith("HTTP/1.1 200"));
  std::string without_second = rows;
  const std::size_t line = without_second.find("key name=second");
  without_second.erase(line, without_second.find('\n', line) + 1 - line);
  std::ofstream(file) << without_second << "key name=other tenant=0\n";
  server.process().signal(SIGHUP);
  REQUIRE(server.process().wait_for_err("keys:3: id is missing; this key is refused until that is mended"));
  CHECK_THAT(ask_models(port, second), StartsWith("HTTP/1.1 401"));
  CHECK_THAT(ask_models(port, third), StartsWith("HTTP/1.1 200"));
  // What is no file of keys changes nothing.
  std::ofstream(file) << "nonsense\n";
  server.process().signal(SIGHUP);
  REQUIRE(server.process().wait_for_err("everything stays as it was"));
  CHECK_THAT(ask_models(port, third), StartsWith("HTTP/1.1 200"));
  const std::string log = server.stop().err;
  for (const std::string& key : {first, second}) CHECK_THAT(log, !Contains(key.substr(key.rfind('_') + 1)));
  CHECK_THAT(log, Contains("refused a key from 127.0.0.1"));
}

TEST_CASE("serve --tls-cert: requests come encrypted, and a new certificate is used after SIGHUP") {
  const TempFolder folder;
  if (!make_certificate(folder.path("."), "old") || !make_certificate(folder.path("."), "new"))
    return skip("the openssl command is not installed");
  namespace fs = std::filesystem;
  const auto use = [&](const std::string& name) {
    for (const char* ending : {".pem", ".key"})
      fs::copy_file(folder.path(name + ending), folder.path(std::string("used") + ending),
                    fs::copy_options::overwrite_existing);
    fs::permissions(folder.path("used.key"), fs::perms(0600));
  };
  use("old");
  const std::string key = add_key(folder.path("keys"), "ci");
  const std::uint16_t port = free_port();
  ServerProcess server({"--listen", tcp_at(port), "--keys-file", folder.path("keys"), "--tls-cert",
                        folder.path("used.pem"), "--tls-key", folder.path("used.key")});
  const auto ask = [&](const std::string& server_name) {
    TlsClient client(connect_to_port(port));
    REQUIRE(client.is_connected());
    CHECK(client.server_name() == server_name);
    REQUIRE(client.write(models_request(key)));
    return client.read_to_end();
  };
  CHECK_THAT(ask("old"), StartsWith("HTTP/1.1 200"));
  use("new");
  server.process().signal(SIGHUP);
  REQUIRE(server.process().wait_for_err("reload: 1 keys"));
  CHECK_THAT(ask("new"), StartsWith("HTTP/1.1 200"));
  CHECK(server.stop().code == 0);
}

TEST_CASE("serve --open: where no key was made, the server's own user needs none, as without it") {
  const std::uint16_t port = free_port();
  ServerProcess server({"--listen", tcp_at(port), "--open"});
  REQUIRE(server.process().wait_for_out("#once="));
  REQUIRE(server.process().wait_for_out("\n"));
  const std::string out = server.process().out();
  const std::string once = out.substr(out.find("once_"), out.find('\n') - out.find("once_"));
  CHECK_THAT(ask_models(port, ""), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(ask_models(port, "any"), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(ask(port, "POST /open", once), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(server.stop().err, Contains("for those users of this machine who may use the socket, and for the page"));
}

TEST_CASE("serve --open: the address that is printed lets one tab in, without a key in the log") {
  const TempFolder folder;
  const std::uint16_t port = free_port();
  ServerProcess server(
      {"--listen", tcp_at(port), "--keys-file", folder.path("keys"), "--open", "--log-level", "trace"});
  const std::string before = "http://127.0.0.1:" + std::to_string(port) + "/#once=";
  REQUIRE(server.process().wait_for_out(before));
  REQUIRE(server.process().wait_for_out("\n"));
  const std::string out = server.process().out();
  const std::string once = out.substr(out.find("once_"), out.find('\n') - out.find("once_"));
  CHECK(once.size() == 48);
  CHECK_THAT(ask_models(port, once), StartsWith("HTTP/1.1 401"));
  CHECK_THAT(ask(port, "POST /open", "once_x"), StartsWith("HTTP/1.1 401"));
  const std::string given = ask(port, "POST /open", once);
  CHECK_THAT(given, StartsWith("HTTP/1.1 200") && Contains("no-store"));
  const auto at = given.find("tab_");
  REQUIRE(at != std::string::npos);
  const std::string key = given.substr(at, given.find('"', at) - at);
  CHECK_THAT(ask_models(port, key), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(ask_models(port, key.substr(0, 46)), StartsWith("HTTP/1.1 401"));
  CHECK_THAT(ask(port, "POST /open", once), StartsWith("HTTP/1.1 401") && Contains("was used"));
  const Finished finished = server.stop();
  CHECK_THAT(finished.err, !Contains(once.substr(5)) && !Contains(key.substr(4)));
}
