// A server on a private socket over a fake gateway.
#pragma once

#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "ipc/buffer_budget.h"
#include "ipc/server.h"
#include "tests/ipc/fake_gateway.h"
#include "tests/ipc/support.h"

namespace troupe::ipc::test {

struct FakeServer {
  explicit FakeServer(const config::ConnectionLimits& limits) : FakeServer(ServerOptions{.limits = limits}) {}
  explicit FakeServer(ServerOptions options = {}) {
    options.socket_path = dir / "troupe.sock";
    auto bound = Server::bind(std::move(options));
    REQUIRE(bound);
    server = std::move(*bound);
    server->start(gateway);
  }
  ~FakeServer() {
    if (server) server->stop();  // before the gateway goes
  }
  const std::string& path() const { return server->socket_path(); }
  // Lets other users into the folder, which is private by default.
  void let_others_reach() const { REQUIRE(::chmod(dir.path().c_str(), 0711) == 0); }

  TempDir dir;
  FakeGateway gateway;
  std::unique_ptr<Server> server;
};

// Checks a server with room for two connections: a third is refused with `code` and the limit's name, and accepted once
// the first is closed. Returns the second and the third.
inline std::array<std::unique_ptr<RawClient>, 2> require_room_for_two(FakeServer& server, v1::Outcome code,
                                                                      const std::string& limit) {
  auto first = std::make_unique<RawClient>(server.path());
  first->hello();
  auto second = std::make_unique<RawClient>(server.path());
  second->hello();
  {
    RawClient third(server.path());
    const v1::Refused refused = third.last_words();
    REQUIRE(refused.code() == code);
    REQUIRE(refused.field() == limit);
    REQUIRE(refused.limit() == 2);
    REQUIRE(refused.retry_after_ms() > 0);
  }
  REQUIRE(first->send(generate_frame(1)));
  server.gateway.wait_submitted(0);
  first.reset();
  server.gateway.wait_cancelled(1);  // the server has seen it go
  auto third = std::make_unique<RawClient>(server.path());
  third->hello();
  return {std::move(second), std::move(third)};
}

// A share of a budget that is never full.
inline std::unique_ptr<BufferShare> any_share() {
  return std::make_unique<BufferShare>(std::make_shared<BufferBudget>(1ull << 50), scheduler::Tenant{.is_owner = true});
}

// A reload changes the mode of the socket's file beside the io thread.
inline void wait_for_mode(const std::string& path, mode_t mode) {
  struct stat status {};
  do {
    REQUIRE(::stat(path.c_str(), &status) == 0);
    std::this_thread::yield();
  } while ((status.st_mode & 07777) != mode);
}

enum class Knock { welcomed, refused, failed };

// The server's answer to a Hello from a child process with that uid. Only root can call this.
inline Knock knock_as(uid_t uid, const std::string& path) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // After fork() in a threaded program: only async-signal-safe calls, and no exceptions from Catch.
    if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(3);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) ::_exit(4);
    const char hello[] = "\x04\x00\x00\x00\x0a\x02\x08\x01";
    (void)!::send(fd, hello, 8, MSG_NOSIGNAL);
    unsigned char answer[8] = {};
    const ssize_t size = ::recv(fd, answer, sizeof(answer), MSG_WAITALL);
    if (size != 8) ::_exit(5);
    ::_exit(answer[4] == 0x0a ? 0 : answer[4] == 0x22 ? 1 : 2);  // the field number of welcome, refused
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) return Knock::failed;
  return WEXITSTATUS(status) == 0 ? Knock::welcomed : Knock::refused;
}

inline actors::TokenRun run_of(std::uint64_t first, std::vector<TokenId> ids, std::string text) {
  actors::TokenRun run;
  run.first_index = first;
  run.ids = std::move(ids);
  run.text = std::move(text);
  return run;
}

inline actors::End end_of(scheduler::Outcome outcome) {
  actors::End end;
  end.outcome = outcome;
  return end;
}

}  // namespace troupe::ipc::test
