// What a running server takes over from a new configuration, and the status that a watchdog asks for.
#include <sys/syscall.h>
#include <unistd.h>

#include <future>

#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

// Waits until earlier calls have taken effect: the io thread handles them and this status in order.
void settle(FakeServer& server) {
  std::promise<void> answered;
  server.server->status([&](actors::StatusSnapshot) { answered.set_value(); });
  REQUIRE(answered.get_future().wait_for(kPatience) == std::future_status::ready);
}

// For this thread alone: the kernel notes a thread's effective uid at connect(), and seteuid() would change the
// server's, too.
void become(uid_t uid) { REQUIRE(::syscall(SYS_setresuid, -1, uid, -1) == 0); }

TEST_CASE("a user that is removed from the guests is served until then and told why it ended") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can act as another user");
    return;
  }
  FakeServer server;
  server.let_others_reach();
  REQUIRE(knock_as(23456, server.path()) == Knock::failed);  // the file's mode already says no
  REQUIRE(server.server->reconfigure({.allow_uids = {23456}}));
  settle(server);
  wait_for_mode(server.path(), 0666);
  REQUIRE(knock_as(23456, server.path()) == Knock::welcomed);
  REQUIRE(knock_as(34567, server.path()) == Knock::refused);

  RawClient owner(server.path());
  owner.hello();
  become(23456);
  RawClient guest(server.path());
  become(0);
  guest.hello();
  REQUIRE(guest.send(generate_frame(1)));
  server.gateway.wait_submitted(0);
  REQUIRE(server.server->reconfigure({}));
  const v1::Refused last = guest.last_words();
  REQUIRE(last.code() == v1::OUTCOME_PERMISSION);
  REQUIRE(last.message().find("uid 23456 may not use this server") != std::string::npos);
  REQUIRE(server.gateway.wait_cancelled(1).size() == 1);
  wait_for_mode(server.path(), 0600);
  REQUIRE(owner.send(generate_frame(1)));  // other users are not affected
  server.gateway.wait_submitted(1);
}

TEST_CASE("new limits count from the next connection on, and values out of range change nothing") {
  FakeServer server;
  RawClient first(server.path());
  first.hello();
  const Status wrong = server.server->reconfigure({.limits = {.max_connections = 0}});
  REQUIRE_FALSE(wrong);
  REQUIRE(wrong.error().code == ErrorCode::invalid_argument);
  settle(server);
  RawClient second(server.path());
  second.hello();
  REQUIRE(server.server->reconfigure({.limits = {.max_connections_per_uid = 2}}));
  settle(server);
  RawClient third(server.path());
  const v1::ServerFrame refused = third.expect();
  REQUIRE(refused.refused().field() == "max_connections_per_uid");
  REQUIRE(refused.refused().limit() == 2);
  REQUIRE(first.send(generate_frame(1)));
  server.gateway.wait_submitted(0);
}

TEST_CASE("every limit that can be changed is in effect after a change") {
  FakeServer server;
  RawClient owner(server.path());
  owner.hello();
  const auto reconfigure = [&](const config::ConnectionLimits& limits) {
    REQUIRE(server.server->reconfigure({.limits = limits}));
    settle(server);
  };
  reconfigure({.hello_timeout = std::chrono::milliseconds(20)});
  REQUIRE(RawClient(server.path()).last_words().limit() == 20);
  reconfigure({.max_connections = 1});
  const v1::Refused crowded = RawClient(server.path()).last_words();
  REQUIRE(crowded.field() == "max_connections");
  REQUIRE(crowded.limit() == 1);
  reconfigure({.max_outbox_bytes = 100000});
  RawClient stalled(server.path());
  REQUIRE(stalled.hello().limits().max_outbox_bytes() == 100000);
  reconfigure({.stall_timeout = std::chrono::milliseconds(30)});
  REQUIRE(stalled.send_bytes(std::string("\x10\x00\x00\x00half", 8)));
  REQUIRE(stalled.last_words().field() == "stall_timeout");
  reconfigure({.hello_timeout = std::chrono::milliseconds(30)});
  REQUIRE(RawClient(server.path()).last_words().limit() == 30);
  reconfigure({.idle_timeout = std::chrono::milliseconds(30)});
  REQUIRE(owner.last_words().field() == "idle_timeout");
}

TEST_CASE("a Status for a closed connection is dropped") {
  FakeServer server;
  bool called = false;
  server.server->stop();
  server.server->status([&](actors::StatusSnapshot) { called = true; });
  server.server.reset();
  REQUIRE_FALSE(called);
}

}  // namespace
}  // namespace troupe::ipc
