// A server from bind to stop: one at a time on a socket, and how it drains and ends.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>

#include "ipc/frames/unserved.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

TEST_CASE("a second server on the same socket is refused as busy until the first has stopped") {
  FakeServer server;
  ServerOptions options;
  options.socket_path = server.path();
  const auto second = Server::bind(options);
  REQUIRE_FALSE(second);
  REQUIRE(second.error().code == ErrorCode::busy);
  server.server->stop();
  REQUIRE(Server::bind(options));
}

TEST_CASE("clients that connect between bind and start are served once it has started") {
  const TempDir dir;
  FakeGateway gateway;
  auto server = Server::bind({.socket_path = dir / "early.sock"});
  REQUIRE(server);
  RawClient client((*server)->socket_path());
  v1::ClientFrame hello;
  hello.mutable_hello()->set_protocol(1);
  REQUIRE(client.send(hello));
  (*server)->start(gateway);
  REQUIRE(client.expect().has_welcome());
}

TEST_CASE("a drain tells clients, finishes their streams, closes, and removes the socket") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  const auto submitted = server.gateway.wait_submitted(0);
  std::promise<void> drained;
  server.server->drain([&] { drained.set_value(); });
  server.server->drain([] { FAIL("a second drain is ignored"); });
  REQUIRE(client.expect().has_draining());
  const auto gateway_done = server.gateway.wait_draining();
  REQUIRE(std::filesystem::exists(server.path()));
  submitted.sink->tokens(run_of(0, {1}, "last"));
  submitted.sink->end(end_of(Outcome::eos));
  gateway_done();
  REQUIRE(client.expect().tokens().text() == "last");
  REQUIRE(client.expect().has_done());
  REQUIRE_FALSE(client.receive());
  REQUIRE(drained.get_future().wait_for(kPatience) == std::future_status::ready);
  REQUIRE_FALSE(std::filesystem::exists(server.path()));
}

TEST_CASE("while a server drains, new connections are refused, and no second server can bind") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  const auto submitted = server.gateway.wait_submitted(0);
  server.gateway.hold_status();
  RawClient asking(server.path());
  asking.hello();
  v1::ClientFrame ask;
  ask.mutable_status()->set_stream(1);
  REQUIRE(asking.send(ask));
  server.gateway.wait_status();
  std::promise<void> drained;
  server.server->drain([&] { drained.set_value(); });
  const auto gateway_done = server.gateway.wait_draining();
  REQUIRE(asking.expect().has_draining());
  const auto second = Server::bind({.socket_path = server.path()});
  REQUIRE_FALSE(second);
  REQUIRE(second.error().code == ErrorCode::busy);
  RawClient late(server.path());
  late.hello();
  v1::ClientFrame health;
  health.mutable_health()->set_stream(1);
  REQUIRE(late.send(health));
  REQUIRE(late.expect().has_health());
  // At the end unanswered questions and a Hello that has not come are refused with the reason.
  RawClient silent(server.path());
  RawClient last(server.path());
  last.hello();  // what came before it was accepted and read
  submitted.sink->end(end_of(Outcome::eos));
  gateway_done();
  const v1::Refused refused = asking.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.code() == v1::OUTCOME_DRAINING);
  REQUIRE_FALSE(late.receive());
  REQUIRE(silent.last_words().code() == v1::OUTCOME_DRAINING);
  REQUIRE(drained.get_future().wait_for(kPatience) == std::future_status::ready);
  REQUIRE_FALSE(std::filesystem::exists(server.path()));
  REQUIRE(Server::bind({.socket_path = server.path()}));
}

TEST_CASE("while a server drains, questions about status, usage and sessions are refused, and not asked") {
  std::atomic<int> num_asked{0};
  ServerOptions options;
  options.ask_usage = [&](const actors::UsageQuery&, const actors::OnUsageReport& answer) {
    ++num_asked;
    answer(actors::UsageReport{});
  };
  FakeServer server(options);
  RawClient client(server.path());
  client.hello();
  std::promise<void> drained;
  server.server->drain([&] { drained.set_value(); });
  const auto gateway_done = server.gateway.wait_draining();
  REQUIRE(client.expect().has_draining());
  v1::ClientFrame status, usage, sessions, models;
  status.mutable_status()->set_stream(1);
  usage.mutable_usage_request()->set_stream(2);
  sessions.mutable_session_request()->set_stream(3);
  sessions.mutable_session_request()->mutable_list();
  for (const v1::ClientFrame* frame : {&status, &usage, &sessions}) {
    REQUIRE(client.send(*frame));
    const v1::ServerFrame answer = client.expect();
    CHECK(answer.refused().code() == v1::OUTCOME_DRAINING);
    CHECK(answer.refused().stream() == stream_of(*frame));
  }
  models.mutable_models()->set_stream(4);
  REQUIRE(client.send(models));
  CHECK(client.expect().has_models());
  CHECK(num_asked == 0);
  CHECK(server.gateway.num_status_calls() == 0);
  gateway_done();
  REQUIRE(drained.get_future().wait_for(kPatience) == std::future_status::ready);
}

TEST_CASE("a client whose connection waits at the end of a drain is told that the server drains") {
  FakeServer server;
  std::promise<void> go_on;
  server.gateway.stop_at_models(go_on);
  RawClient client(server.path());
  client.hello();
  std::promise<void> drained;
  server.server->drain([&] { drained.set_value(); });
  const auto gateway_done = server.gateway.wait_draining();
  v1::ClientFrame ask;
  ask.mutable_models()->set_stream(1);
  REQUIRE(client.send(ask));  // the io thread stops at it
  RawClient waiting(server.path());
  gateway_done();
  go_on.set_value();
  REQUIRE(waiting.last_words().code() == v1::OUTCOME_DRAINING);
  while (client.receive()) continue;
  REQUIRE(drained.get_future().wait_for(kPatience) == std::future_status::ready);
}

TEST_CASE("on an inherited socket new connections during a drain wait for the next server") {
  TempDir dir;
  const std::string path = dir / "troupe.sock";
  const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listening, 8) == 0);
  FakeGateway gateway;
  auto server = Server::bind({.inherited_socket = ::dup(listening)});
  REQUIRE(server);
  (*server)->start(gateway);
  std::promise<void> drained;
  (*server)->drain([&] { drained.set_value(); });
  const auto gateway_done = gateway.wait_draining();
  RawClient client(path);
  gateway_done();
  REQUIRE(drained.get_future().wait_for(kPatience) == std::future_status::ready);
  (*server)->stop();
  auto next = Server::bind({.inherited_socket = listening});
  REQUIRE(next);
  (*next)->start(gateway);
  client.hello();
  (*next)->stop();
}

TEST_CASE("a drain without connections ends when the gateway has drained, and stop() may end it before") {
  {
    FakeServer server;
    std::promise<void> drained;
    server.server->drain([&] { drained.set_value(); });
    server.gateway.wait_draining()();
    REQUIRE(drained.get_future().wait_for(kPatience) == std::future_status::ready);
  }
  FakeServer server;
  server.server->drain([] { FAIL("not after stop()"); });
  const auto late = server.gateway.wait_draining();
  server.server->stop();
  server.server.reset();
  late();
}

TEST_CASE("a stop cancels streams and closes connections at once") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  server.gateway.wait_submitted(0);
  server.server->stop();
  server.gateway.wait_cancelled(1);
  while (client.receive()) continue;
  server.server->stop();  // again does nothing
}

}  // namespace
}  // namespace troupe::ipc
