// The io thread is watched: what it does that takes too long is told, and that it comes to nothing any more.
#include <asio.hpp>
#include <future>
#include <thread>

#include "ipc/io_watch.h"
#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"

using namespace troupe;
using namespace troupe::ipc;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;

TEST_CASE("an io thread that hangs is told of, with what it does and for whom") {
  std::promise<std::string> told;
  std::promise<void> go_on;
  ServerOptions options;
  options.turn_patience = std::chrono::milliseconds(1);
  options.on_stuck = [&, is_told = false](const std::string& why) mutable {
    if (!std::exchange(is_told, true)) told.set_value(why);
  };
  FakeServer server(std::move(options));
  server.gateway.stop_at_models(go_on);
  HttpClient client(server.path());
  REQUIRE(client.get("/v1/models"));
  auto why = told.get_future();
  REQUIRE(why.wait_for(kPatience) == std::future_status::ready);
  const std::string text = why.get();
  INFO(text);
  CHECK(
      has(text, "it answers /v1/models of uid " + std::to_string(::geteuid()) + " pid " + std::to_string(::getpid())));
  CHECK(has(text, "progress-timeout"));
  go_on.set_value();
  CHECK(client.expect().status == 200);
}

TEST_CASE("an io thread that hangs while the server is idle is told of, too") {
  asio::io_context io{1};
  Activity activity;
  std::promise<std::string> told;
  std::promise<void> go_on;
  const auto on_stuck = [&, is_told = false](const std::string& why) mutable {
    if (!std::exchange(is_told, true)) told.set_value(why);
  };
  IoWatch watch(
      io, activity, std::chrono::milliseconds(1), [] { return true; }, on_stuck, std::chrono::milliseconds(5));
  auto work = asio::make_work_guard(io);
  std::thread thread([&io] { io.run(); });
  watch.start();
  asio::post(io, [&, gate = go_on.get_future().share()] {
    const Doing doing(activity, "waits for the test", "", {.uid = 7, .pid = 8, .is_known = true});
    gate.wait();
  });
  auto why = told.get_future();
  const bool is_told = why.wait_for(kPatience) == std::future_status::ready;
  go_on.set_value();
  watch.stop();
  work.reset();
  thread.join();
  REQUIRE(is_told);
  CHECK(has(why.get(), "it waits for the test of uid 7 pid 8"));
}

TEST_CASE("a user's groups are asked for without holding up other connections, and once for all that wait") {
  std::promise<void> go_on;
  std::promise<std::uint32_t> asked;
  ServerOptions options;
  options.http.listen = {*parse_tcp_address("tcp://127.0.0.1:0")};
  options.find_groups = [&, gate = go_on.get_future().share()](std::uint32_t uid) {
    asked.set_value(uid);  // a second time this would throw
    gate.wait();
    return std::vector<std::uint32_t>{::getegid()};
  };
  FakeServer server(std::move(options));
  HttpClient first(server.server->tcp_addresses().at(0));
  CHECK(asked.get_future().get() == ::geteuid());
  HttpClient second(server.server->tcp_addresses().at(0));
  HttpClient other(server.path());
  REQUIRE(other.get("/health"));
  CHECK(other.expect().status == 200);
  go_on.set_value();
  for (HttpClient* client : {&first, &second}) {
    REQUIRE(client->get("/health"));
    CHECK(client->expect().status == 200);
  }
}

TEST_CASE("clients that wait for their user's groups count as connections") {
  std::promise<void> go_on;
  ServerOptions options;
  options.http.listen = {*parse_tcp_address("tcp://127.0.0.1:0")};
  options.limits.max_connections_per_uid = 2;
  options.find_groups = [gate = go_on.get_future().share()](std::uint32_t) {
    gate.wait();
    return std::vector<std::uint32_t>{};
  };
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  HttpClient first(address), second(address), third(address);
  CHECK(third.expect().status == 429);
  go_on.set_value();
  REQUIRE(second.get("/health"));
  CHECK(second.expect().status == 200);
}
