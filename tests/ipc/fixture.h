// A server on a private socket over a gateway that the test plays.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "ipc/server.h"
#include "tests/ipc/fake_gateway.h"
#include "tests/ipc/support.h"

namespace troupe::ipc::test {

struct FakeServer {
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

  TempDir dir;
  FakeGateway gateway;
  std::unique_ptr<Server> server;
};

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
