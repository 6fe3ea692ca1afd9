// The limits of a connection, and that other connections are served while one exceeds them.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <random>
#include <string>

#include <google/protobuf/stubs/logging.h>

#include "ipc/outbox.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;
using std::chrono::milliseconds;

// A well-behaved client with a running stream; alive() checks that it is still served.
struct Bystander {
  explicit Bystander(FakeServer& fake) : server(fake), client(fake.path()) {
    client.hello();
    const std::size_t index = server.gateway.num_submitted();
    REQUIRE(client.send(generate_frame(1)));
    sink = server.gateway.wait_submitted(index).sink;
  }
  void require_alive() {
    sink->tokens(run_of(count++, {1}, "x"));
    REQUIRE(client.expect().tokens().first_index() == count - 1);
  }

  FakeServer& server;
  RawClient client;
  std::shared_ptr<actors::StreamSink> sink;
  std::uint64_t count = 0;
};

TEST_CASE("the first frame must be the only Hello, with a protocol version that is served") {
  FakeServer server;
  Bystander bystander(server);
  {
    RawClient client(server.path());
    REQUIRE(client.send(generate_frame(1)));
    REQUIRE(client.last_words().field() == "hello");
  }
  {
    RawClient client(server.path());
    v1::ClientFrame frame;
    frame.mutable_hello();
    REQUIRE(client.send(frame));
    const v1::Refused refused = client.last_words();
    REQUIRE(refused.code() == v1::OUTCOME_UNSUPPORTED);
    REQUIRE(refused.field() == "hello.protocol");
  }
  {
    RawClient client(server.path());
    client.hello();
    v1::ClientFrame frame;
    frame.mutable_hello()->set_protocol(1);
    REQUIRE(client.send(frame));
    REQUIRE(client.last_words().message().find("second Hello") != std::string::npos);
  }
  {
    RawClient client(server.path());
    v1::ClientFrame frame;
    frame.mutable_hello()->set_protocol(1);
    frame.mutable_hello()->set_client(std::string(65, 'x'));
    REQUIRE(client.send(frame));
    REQUIRE(client.last_words().field() == "hello.client");
  }
  bystander.require_alive();
}

TEST_CASE("a client of a newer protocol gets a Welcome with version 1") {
  FakeServer server;
  RawClient client(server.path());
  v1::ClientFrame frame;
  frame.mutable_hello()->set_protocol(9);
  frame.GetReflection()->MutableUnknownFields(&frame)->AddVarint(77, 1);
  v1::Hello& hello = *frame.mutable_hello();
  hello.GetReflection()->MutableUnknownFields(&hello)->AddLengthDelimited(57, "new");
  REQUIRE(client.send(frame));
  REQUIRE(client.expect().welcome().protocol() == 1);
}

TEST_CASE("a connection without a Hello is ended after the hello timeout") {
  FakeServer server;
  RawClient client(server.path());
  REQUIRE(client.send_bytes(std::string(2, '\0')));  // half a header does not count
  REQUIRE(server.server->reconfigure({.limits = {.hello_timeout = milliseconds(40)}}));
  const v1::Refused refused = client.last_words();
  REQUIRE(refused.field() == "hello");
  REQUIRE(refused.limit() == 40);
}

TEST_CASE("a connection that asks for nothing is ended after the idle timeout, and one with a request is not") {
  FakeServer server;
  Bystander bystander(server);
  RawClient client(server.path());
  client.hello();
  REQUIRE(server.server->reconfigure({.limits = {.idle_timeout = milliseconds(40)}}));
  const v1::Refused refused = client.last_words();
  REQUIRE(refused.field() == "idle_timeout");
  REQUIRE(refused.limit() == 40);
  bystander.require_alive();
  bystander.sink->end(end_of(Outcome::eos));
  REQUIRE(bystander.client.expect().has_done());
  REQUIRE(bystander.client.last_words().field() == "idle_timeout");
}

TEST_CASE("a damaged frame gets a refusal, ends its connection and cancels its streams") {
  FakeServer server;
  Bystander bystander(server);
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  const actors::RequestId id = server.gateway.wait_submitted(1).id;
  REQUIRE(client.send_bytes(std::string("\x03\x00\x00\x00\xff\xff\xff", 7)));
  const v1::Refused refused = client.last_words();
  REQUIRE(refused.code() == v1::OUTCOME_INVALID_ARGUMENT);
  REQUIRE(refused.field() == "frame");
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{id});
  bystander.require_alive();
}

TEST_CASE("text that is not UTF-8 is a damaged frame") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  // ClientFrame{generate{stream 1, text "\xff"}}
  REQUIRE(client.send_bytes(std::string("\x07\x00\x00\x00\x12\x05\x08\x01\x1a\x01\xff", 11)));
  REQUIRE(client.last_words().message().find("UTF-8") != std::string::npos);
}

TEST_CASE("a frame above the limit ends the connection with both numbers; one of exactly the limit does not") {
  FakeServer server({.max_frame_bytes = 5000});
  Bystander bystander(server);
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1, std::string(4990, 'x'));
  REQUIRE(frame.ByteSizeLong() <= 5000);
  while (frame.ByteSizeLong() < 5000) frame.mutable_generate()->mutable_text()->push_back('x');
  REQUIRE(frame.ByteSizeLong() == 5000);
  REQUIRE(client.send(frame));
  server.gateway.wait_submitted(1);
  frame.mutable_generate()->mutable_text()->push_back('x');
  client.send(frame);
  const v1::Refused refused = client.last_words();
  REQUIRE(refused.field() == "max_frame_bytes");
  REQUIRE(refused.limit() == 5000);
  REQUIRE(refused.message().find("5001") != std::string::npos);
  bystander.require_alive();
}

TEST_CASE("a connection that begins with an HTTP method goes on as HTTP, however its first bytes come") {
  FakeServer server;
  RawClient bystander(server.path());
  bystander.hello();
  for (const std::size_t first : {1u, 2u, 4u, 5u}) {
    const std::string request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    RawClient client(server.path());
    REQUIRE(client.send_bytes(request.substr(0, first)));
    REQUIRE(client.send_bytes(request.substr(first)));
    std::string answer;
    char bytes[4096];
    for (ssize_t size; (size = ::recv(client.fd(), bytes, sizeof bytes, 0)) > 0;)
      answer.append(bytes, static_cast<std::size_t>(size));
    REQUIRE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  }
  REQUIRE(bystander.send(generate_frame(1)));
  server.gateway.wait_submitted(0);
}

TEST_CASE("HTTP after the Hello is a frame above the limit, and is refused by a frame") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send_bytes("GET /v1/models HTTP/1.1\r\n\r\n"));
  REQUIRE(client.last_words().message().find("HTTP") != std::string::npos);
}

TEST_CASE("one request more than max_streams is refused, and accepted once another has ended") {
  FakeServer server({.max_streams = 3});
  RawClient client(server.path());
  client.hello();
  for (std::uint64_t stream = 1; stream <= 3; ++stream) REQUIRE(client.send(generate_frame(stream)));
  REQUIRE(client.send(generate_frame(4)));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 4);
  REQUIRE(refused.code() == v1::OUTCOME_QUOTA);
  REQUIRE(refused.field() == "max_streams");
  REQUIRE(refused.limit() == 3);
  REQUIRE(refused.retry_after_ms() > 0);
  server.gateway.wait_submitted(1).sink->end(end_of(Outcome::eos));
  REQUIRE(client.expect().done().stream() == 2);
  REQUIRE(client.send(generate_frame(4)));
  server.gateway.wait_submitted(3).sink->end(end_of(Outcome::eos));
  REQUIRE(client.expect().done().stream() == 4);
}

TEST_CASE("one connection more than max_connections is refused, and accepted once another is closed") {
  FakeServer server({.max_connections = 2});
  const auto [second, third] = require_room_for_two(server, v1::OUTCOME_QUEUE_FULL, "max_connections");
  v1::ClientFrame ask;
  ask.mutable_status()->set_stream(1);
  REQUIRE(third->send(ask));
  const v1::ServerFrame answer = third->expect();
  REQUIRE(answer.status().connections() == 2);
  REQUIRE(answer.status().connections_accepted() == 3);
  REQUIRE(answer.status().connections_refused() == 1);
}

TEST_CASE("a uid that is not listed is refused, a listed one is served") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can act as another user");
    return;
  }
  FakeServer server({.allow_uids = {23456}});
  server.let_others_reach();
  REQUIRE(knock_as(23456, server.path()) == Knock::welcomed);
  REQUIRE(knock_as(34567, server.path()) == Knock::refused);
}

TEST_CASE("a thousand refused connections of one user do not keep other users from connecting") {
  constexpr int kConnections = 1000;
  int longest = 0;  // that the system lets a queue of connections be
  std::ifstream("/proc/sys/net/core/somaxconn") >> longest;
  if (::geteuid() != 0 || longest <= kConnections) {
    WARN("skipped: only root can become another user, and net.core.somaxconn must be above " << kConnections);
    return;
  }
  const TempDir dir;
  REQUIRE(::chmod(dir.path().c_str(), 0711) == 0);
  auto server = Server::bind({.socket_path = dir / "troupe.sock", .allow_uids = {23456}});
  REQUIRE(server);
  const std::string path = (*server)->socket_path();
  std::array<int, 2> done{};
  REQUIRE(::pipe(done.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // plain calls only
    const rlimit files{.rlim_cur = 2 * kConnections, .rlim_max = 2 * kConnections};
    if (::setrlimit(RLIMIT_NOFILE, &files) != 0 || ::setgid(34567) != 0 || ::setuid(34567) != 0) ::_exit(3);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    for (int i = 0; i < kConnections; ++i) {
      const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(4);
    }
    (void)!::write(done[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  ::close(done[1]);
  char byte = 0;
  const ssize_t connected = ::read(done[0], &byte, 1);  // all of them wait in the queue
  ::close(done[0]);
  CHECK(connected == 1);
  if (connected == 1) {
    RawClient behind_them(path);
    FakeGateway gateway;
    (*server)->start(gateway);
    behind_them.hello();
    v1::ClientFrame ask;
    ask.mutable_status()->set_stream(1);
    REQUIRE(behind_them.send(ask));
    const v1::ServerFrame status = behind_them.expect();
    CHECK(status.status().connections_refused() == kConnections);
    (*server)->stop();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("when a client disappears, its streams are cancelled and no others") {
  FakeServer server;
  Bystander bystander(server);
  {
    RawClient client(server.path());
    client.hello();
    for (std::uint64_t stream = 1; stream <= 5; ++stream) REQUIRE(client.send(generate_frame(stream)));
    server.gateway.wait_submitted(5);
  }
  auto cancelled = server.gateway.wait_cancelled(5);
  std::sort(cancelled.begin(), cancelled.end());
  REQUIRE(cancelled == std::vector<actors::RequestId>{2, 3, 4, 5, 6});
  bystander.require_alive();
}

TEST_CASE("tokens and ends for a closed connection are dropped") {
  FakeServer server;
  server.gateway.keep_streams_on_cancel();
  std::shared_ptr<actors::StreamSink> sink;
  {
    RawClient client(server.path());
    client.hello();
    REQUIRE(client.send(generate_frame(1)));
    sink = server.gateway.wait_submitted(0).sink;
  }
  server.gateway.wait_cancelled(1);
  sink->tokens(run_of(0, {1}, "x"));
  sink->end(end_of(Outcome::cancelled));
  server.server->stop();
  server.server.reset();
  sink->tokens(run_of(1, {1}, "x"));  // even when there is no server any more
}

TEST_CASE("a stream that is granted no credit is ended by name after the stall timeout") {
  FakeServer server({.stall_timeout = milliseconds(60)});
  Bystander bystander(server);  // leaves credit to the server: it never stalls that way
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_credit(1);
  REQUIRE(client.send(frame));
  server.gateway.wait_submitted(1).sink->tokens(run_of(0, {1}, "x"));
  REQUIRE(client.expect().has_tokens());
  const v1::Done done = client.expect().done();
  REQUIRE(done.reason() == v1::OUTCOME_CANCELLED);
  REQUIRE(done.message().find("stall_timeout") != std::string::npos);
  REQUIRE(done.message().find("60") != std::string::npos);
  bystander.require_alive();
}

TEST_CASE("a frame that is begun and not ended ends its connection after the stall timeout") {
  FakeServer server({.stall_timeout = milliseconds(60)});
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send_bytes(std::string("\x10\x00\x00\x00half", 8)));
  REQUIRE(client.last_words().field() == "stall_timeout");
}

TEST_CASE("a frame that comes on, and is not complete after the body timeout, ends its connection") {
  FakeServer server({.body_timeout = milliseconds(60)});
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send_bytes(std::string("\x10\x00\x00\x00half", 8)));
  REQUIRE(client.last_words().field() == "body_timeout");
}

TEST_CASE("a message may take the body timeout, and a second more for each 16 KiB that have come") {
  using TimePoint = MessageArrival::TimePoint;
  MessageArrival arrival;
  const TimePoint begin = TimePoint() + std::chrono::hours(1);
  const auto is_late = [&](milliseconds after, std::uint64_t bytes) {
    return arrival.is_late(begin + after, bytes, milliseconds(300'000));
  };
  arrival.begin(begin);
  CHECK_FALSE(is_late(milliseconds(299'999), 0));
  CHECK(is_late(milliseconds(300'000), 0));
  CHECK_FALSE(is_late(milliseconds(300'000), 16384));
  CHECK(is_late(milliseconds(301'000), 16384));
  CHECK_FALSE(is_late(milliseconds(555'999), 4u << 20));
  CHECK(is_late(milliseconds(556'000), 4u << 20));
  arrival.excuse(milliseconds(5'000));  // the server had no room
  CHECK_FALSE(is_late(milliseconds(304'999), 0));
  CHECK(is_late(milliseconds(305'000), 0));
}

// Asks `count` questions with long answers and reads none of them.
void ask_without_reading(RawClient& client, int count) {
  v1::ClientFrame ask;
  ask.mutable_detokenize();
  for (int i = 0; i < 4000; ++i) ask.mutable_detokenize()->add_ids('x');
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    ask.mutable_detokenize()->set_stream(static_cast<std::uint64_t>(i) + 1);
    bytes += RawClient::frame_bytes(ask);
  }
  client.send_bytes(bytes);
}

TEST_CASE("a connection with too many unread answers is ended by name") {
  FakeServer server({.max_outbox_bytes = 100000});
  Bystander bystander(server);
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_credit(1000000);
  REQUIRE(client.send(frame));
  const auto sink = server.gateway.wait_submitted(1).sink;
  for (std::uint64_t i = 0; i < 1000; ++i) sink->tokens(run_of(i, {1}, std::string(4000, 'x')));
  const v1::Refused refused = client.last_words();
  REQUIRE(refused.field() == "max_outbox_bytes");
  REQUIRE(refused.limit() == 100000);
  bystander.require_alive();
}

TEST_CASE("answers count as unread until they are written to the socket") {
  int woken = 0;
  Outbox outbox(1000, any_share(), [&] { ++woken; });
  const auto push = [&] { outbox.push({1, run_of(0, {1}, std::string(500, 'x'))}); };
  push();
  REQUIRE(outbox.take(1000).size() == 1);
  REQUIRE(outbox.bytes() > 500);
  push();
  REQUIRE(outbox.overflowed());
  REQUIRE(outbox.take(1000).empty());
  REQUIRE(woken == 2);
  Outbox other(1000, any_share(), [] {});
  for (int i = 0; i < 3; ++i) {
    other.push({1, run_of(0, {1}, std::string(500, 'x'))});
    REQUIRE(other.take(1000).size() == 1);
    other.written();
  }
  REQUIRE_FALSE(other.overflowed());
  REQUIRE(other.bytes() == 0);
}

TEST_CASE("answers that overflow wake the connection also while it writes what came before them") {
  int woken = 0;
  Outbox outbox(2000, any_share(), [&] { ++woken; });
  const auto push = [&] { outbox.push({1, run_of(0, {1}, std::string(500, 'x'))}); };
  push();
  push();
  REQUIRE(outbox.take(1).size() == 1);
  REQUIRE(woken == 1);
  for (int i = 0; i < 3; ++i) push();
  REQUIRE(outbox.overflowed());
  REQUIRE(woken == 2);
}

TEST_CASE("a connection whose client takes no byte for the stall timeout is ended") {
  FakeServer server({.max_streams = 100000, .stall_timeout = milliseconds(60)});
  Bystander bystander(server);
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1000000)));
  const actors::RequestId id = server.gateway.wait_submitted(1).id;
  ask_without_reading(client, 200);
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{id});
  while (client.receive()) continue;  // what had been sent, and then the end
  bystander.require_alive();
}

TEST_CASE("2,000 connections of damaged frames: each is answered or ended, and the server keeps serving") {
  FakeServer server({.max_streams = 1000, .max_frame_bytes = 4096});
  Bystander bystander(server);
  v1::ClientFrame frames[4];
  frames[0].mutable_hello()->set_protocol(1);
  frames[1] = generate_frame(1);
  frames[1].mutable_generate()->mutable_sampling()->set_temperature(0.5f);
  frames[1].mutable_generate()->set_credit(3);
  frames[2].mutable_tokenize()->set_stream(2);
  frames[2].mutable_tokenize()->set_text("hello");
  frames[3].mutable_status()->set_stream(3);
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (const v1::ClientFrame& frame : frames) bytes += RawClient::frame_bytes(frame);
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      // In half of the rounds the Hello is intact, so that the frames after it are parsed.
      const std::size_t begin = round % 2 ? 0 : RawClient::frame_bytes(frames[0]).size();
      bytes[begin + random() % (bytes.size() - begin)] ^= static_cast<char>(1 + random() % 255);
    }
    RawClient client(server.path());
    client.send_bytes(bytes);
    client.finish();
    while (client.receive()) continue;  // whatever the answers, they come to an end
  }
  bystander.require_alive();
}

TEST_CASE("limits out of range are refused at once") {
  const TempDir dir;
  const auto refused = [&](const config::ConnectionLimits& limits) {
    const auto server = Server::bind({.socket_path = dir / "x.sock", .limits = limits});
    REQUIRE_FALSE(server);
    REQUIRE(server.error().code == ErrorCode::invalid_argument);
    return server.error().message;
  };
  REQUIRE(refused({.max_connections = 0}).find("max_connections") == 0);
  REQUIRE(refused({.max_connections_per_uid = 0}).find("max_connections_per_uid") == 0);
  REQUIRE(refused({.max_streams = 0}).find("max_streams") == 0);
  REQUIRE(refused({.max_frame_bytes = (16u << 20) + 1}).find("max_frame_bytes") == 0);
  REQUIRE(refused({.max_outbox_bytes = 1}).find("max_outbox_bytes") == 0);
  // A frame larger than a guest's whole share would wait for ever.
  REQUIRE(refused({.max_frame_bytes = 16u << 20, .max_buffer_bytes = 63u << 20}).find("max_buffer_bytes") == 0);
  REQUIRE(refused({.max_frames_per_second = 0}).find("max_frames_per_second") == 0);
  REQUIRE(refused({.max_questions_per_second = 0}).find("max_questions_per_second") == 0);
  REQUIRE(refused({.max_refusals_per_second = 0}).find("max_refusals_per_second") == 0);
  REQUIRE(refused({.hello_timeout = milliseconds(0)}).find("hello_timeout") == 0);
  REQUIRE(refused({.stall_timeout = milliseconds(-1)}).find("stall_timeout") == 0);
  REQUIRE(refused({.idle_timeout = milliseconds(-1)}).find("idle_timeout") == 0);
}

TEST_CASE("a server raises its descriptor limit, and accepts no more connections than that allows") {
  REQUIRE(connections_within(256, 1024) == 256);
  REQUIRE(connections_within(256, 256 + kOtherDescriptors) == 256);
  REQUIRE(connections_within(256, 255 + kOtherDescriptors) == 255);
  REQUIRE(connections_within(256, 3) == 1);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{.rlim_cur = std::min<rlim_t>(before.rlim_max, 256), .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  {
    FakeServer server;
    rlimit raised{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &raised) == 0);
    REQUIRE(raised.rlim_cur == before.rlim_max);
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace
}  // namespace troupe::ipc
