// Live requests are listed and cancelled from another connection.
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "ipc/frames/frame_connection.h"
#include "ipc/hub.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;

v1::ClientFrame cancel_frame(std::uint64_t stream, std::uint64_t request) {
  v1::ClientFrame frame;
  frame.mutable_cancel_request()->set_stream(stream);
  frame.mutable_cancel_request()->set_request(request);
  return frame;
}

TEST_CASE("an owner cancels any request by its number, and its client is told the owner's uid") {
  FakeServer server;
  RawClient asking(server.path());
  asking.hello();
  REQUIRE(asking.send(generate_frame(5)));
  const auto request = server.gateway.wait_submitted(0).id;
  RawClient other(server.path());
  other.hello();
  REQUIRE(other.send(cancel_frame(1, request + 1)));
  const v1::Refused refused = other.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.code() == v1::OUTCOME_INVALID_ARGUMENT);
  REQUIRE(refused.field() == "request");
  REQUIRE(other.send(cancel_frame(1, request)));
  REQUIRE(other.expect().request_cancelled().stream() == 1);
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{request});
  const v1::Done done = asking.expect().done();
  REQUIRE(done.stream() == 5);
  REQUIRE(done.reason() == v1::OUTCOME_CANCELLED);
  REQUIRE(done.message() == "uid " + std::to_string(::geteuid()) + " asked for it with CancelRequest");
  REQUIRE(other.send(cancel_frame(1, request)));  // it has ended
  REQUIRE(other.expect().has_refused());
}

TEST_CASE("a Status of this connection lists only its own requests, with their streams") {
  FakeServer server;
  RawClient mine(server.path()), other(server.path());
  for (RawClient* client : {&mine, &other}) client->hello();
  // The fake gateway reports one live request, number 7.
  v1::ClientFrame seven = generate_frame(9);
  seven.mutable_generate()->set_n(7);
  REQUIRE(mine.send(seven));
  server.gateway.wait_submitted(6);
  v1::ClientFrame ask;
  ask.mutable_status()->set_stream(1);
  ask.mutable_status()->set_list_requests(true);
  const auto listed_for = [&](RawClient& client, bool this_connection) {
    ask.mutable_status()->set_this_connection(this_connection);
    REQUIRE(client.send(ask));
    return client.expect().status();
  };
  for (const bool this_connection : {false, true}) {
    const v1::Status status = listed_for(mine, this_connection);
    REQUIRE(status.live_requests_size() == 1);
    REQUIRE(status.live_requests(0).request() == 7);
    REQUIRE(status.live_requests(0).stream() == 9);
  }
  const v1::Status of_other = listed_for(other, false);
  REQUIRE(of_other.live_requests_size() == 1);
  REQUIRE(of_other.live_requests(0).stream() == 0);
  REQUIRE(listed_for(other, true).live_requests_size() == 0);
}

// Connections with chosen uids, without a server: over a real socket only root could connect as other users.
class Connections {
 public:
  Connections() { hub_.gateway = &gateway_; }
  ~Connections() {
    hub_.stop_ticking();
    for (const auto& connection : connections_) connection->close();
    settle();
    for (const int fd : clients_) ::close(fd);
  }

  // Asks for n answers, on a new connection.
  void generate(std::uint32_t uid, std::uint32_t n) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    clients_.push_back(ends[0]);
    connections_.push_back(std::make_shared<FrameConnection>(
        hub_, Socket(hub_.io, asio::generic::stream_protocol(AF_UNIX, 0), ends[1]), Peer{.uid = uid}));
    hub_.remember(connections_.back());
    connections_.back()->start();
    v1::ClientFrame hello, generate = generate_frame(1);
    hello.mutable_hello()->set_protocol(1);
    generate.mutable_generate()->set_n(n);
    const std::string bytes = RawClient::frame_bytes(hello) + RawClient::frame_bytes(generate);
    REQUIRE(::send(ends[0], bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    const std::size_t before = gateway_.num_submitted();
    while (gateway_.num_submitted() == before) settle();
  }
  bool cancel(std::uint64_t number, std::uint32_t uid, bool is_owner = false) {
    const bool found = hub_.cancel_request(number, {.id = TenantId{uid}, .is_owner = is_owner}, uid);
    settle();
    return found;
  }
  // The numbers in the user's Status, by the gateway's ids.
  std::map<actors::RequestId, std::uint64_t> requests_of(std::uint32_t uid) {
    std::map<actors::RequestId, std::uint64_t> numbers;
    for (const auto& [id, own] : hub_.requests_of(TenantId{uid}, *connections_.front())) numbers[id] = own.number;
    return numbers;
  }
  std::vector<actors::RequestId> cancelled(std::size_t count) { return gateway_.wait_cancelled(count); }

 private:
  void settle() {
    hub_.io.restart();
    while (hub_.io.poll() > 0) hub_.io.restart();
  }

  FakeGateway gateway_;
  Hub hub_{ServerOptions{}};
  std::vector<std::shared_ptr<FrameConnection>> connections_;
  std::vector<int> clients_;
};

TEST_CASE("a guest's requests are numbered per user, and it cannot cancel other users' requests") {
  constexpr std::uint32_t kAnna = 61001, kBen = 61002, kOwner = 61000;
  Connections all;
  all.generate(kAnna, 1);  // the gateway's 1
  all.generate(kBen, 2);   // 2 and 3
  all.generate(kAnna, 2);  // 4 and 5
  REQUIRE(all.requests_of(kAnna) == std::map<actors::RequestId, std::uint64_t>{{1, 1}, {4, 2}, {5, 3}});
  REQUIRE(all.requests_of(kBen) == std::map<actors::RequestId, std::uint64_t>{{2, 1}, {3, 2}});
  REQUIRE_FALSE(all.cancel(3, kBen));  // the gateway's third, and Anna's: not Ben's
  REQUIRE(all.cancel(2, kBen));
  REQUIRE(all.cancelled(1) == std::vector<actors::RequestId>{3});
  REQUIRE(all.cancel(1, kAnna));
  REQUIRE(all.cancel(2, kAnna));  // what has ended moves no number
  REQUIRE(all.cancelled(3) == std::vector<actors::RequestId>{3, 1, 4});
  REQUIRE(all.requests_of(kAnna) == std::map<actors::RequestId, std::uint64_t>{{5, 3}});
  REQUIRE_FALSE(all.cancel(1, kAnna));
  REQUIRE(all.cancel(2, kOwner, /*is_owner=*/true));
  REQUIRE(all.cancelled(4).back() == 2);
}

}  // namespace
}  // namespace troupe::ipc
