// Abuse by one user or one connection: limits hold, and other users are served as before.
#include <sstream>
#include <string>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "ipc/frames/frame_connection.h"
#include "ipc/frames/wire.h"
#include "ipc/rate_limits.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

TEST_CASE("one connection more than max_connections_per_uid is refused, and accepted once another is closed") {
  FakeServer server({.max_connections_per_uid = 2});
  require_room_for_two(server, v1::OUTCOME_QUOTA, "max_connections_per_uid");
}

TEST_CASE("the last connections are kept for the server's own user") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can act as another user");
    return;
  }
  FakeServer server({.allow_uids = {23456}, .limits = {.max_connections = 16}});  // one of them is kept
  server.let_others_reach();
  REQUIRE(knock_as(23456, server.path()) == Knock::welcomed);
  // The server counts a closed connection as open until it reads the close; so these are kept open.
  std::vector<std::unique_ptr<RawClient>> ours;
  while (ours.size() < 15) {
    ours.push_back(std::make_unique<RawClient>(server.path()));
    ours.back()->hello();
  }
  REQUIRE(knock_as(23456, server.path()) == Knock::refused);
  ours.push_back(std::make_unique<RawClient>(server.path()));
  ours.back()->hello();
  RawClient seventeenth(server.path());
  REQUIRE(seventeenth.last_words().field() == "max_connections");
}

TEST_CASE("even of two connections the last is kept for the server's own user") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can act as another user");
    return;
  }
  FakeServer server({.allow_uids = {23456}, .limits = {.max_connections = 2}});
  server.let_others_reach();
  RawClient first(server.path());
  first.hello();
  REQUIRE(knock_as(23456, server.path()) == Knock::refused);
  RawClient second(server.path());
  second.hello();
}

TEST_CASE("only the server's own user and root may give a request a priority below 0") {
  const auto code_for = [](std::uint32_t uid, std::int32_t priority) -> std::optional<Refusal> {
    v1::ClientFrame frame = generate_frame(1);
    frame.mutable_generate()->set_priority(priority);
    auto request = to_request(*frame.mutable_generate(), tenant_of({}, {.uid = uid}), actors::kMaxPromptBytes);
    if (const Refusal* refusal = std::get_if<Refusal>(&request)) return *refusal;
    REQUIRE(std::get<actors::Request>(request).priority == priority);
    return std::nullopt;
  };
  const std::uint32_t guest = ::geteuid() + 1;
  REQUIRE_FALSE(code_for(::geteuid(), -1000));
  REQUIRE_FALSE(code_for(0, -1000));
  REQUIRE_FALSE(code_for(guest, 0));
  REQUIRE_FALSE(code_for(guest, 1000));
  const auto refused = code_for(guest, -1);
  REQUIRE(refused);
  REQUIRE(refused->outcome == Outcome::permission);
  REQUIRE(refused->field == "priority");
  for (const std::int32_t priority : {-1001, 1001, std::numeric_limits<std::int32_t>::min()}) {
    for (const std::uint32_t uid : {std::uint32_t{::geteuid()}, guest}) {
      const auto out_of_range = code_for(uid, priority);
      REQUIRE(out_of_range);
      REQUIRE(out_of_range->outcome == Outcome::invalid_argument);
      REQUIRE(out_of_range->field == "priority");
      REQUIRE(out_of_range->limit == 1000);
    }
  }
}

TEST_CASE("repeated fields are counted before their entries are read") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  v1::Sampling& sampling = *frame.mutable_generate()->mutable_sampling();
  for (int i = 0; i < 500000; ++i) sampling.add_logit_bias();
  v1::LogitBias& first = *sampling.mutable_logit_bias(0);
  first.GetReflection()->MutableUnknownFields(&first)->AddVarint(
      57, 1);  // would be refused by another name if entries were read first
  REQUIRE(client.send(frame));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.code() == v1::OUTCOME_INVALID_ARGUMENT);
  REQUIRE(refused.field() == "sampling.logit_bias");
  REQUIRE(refused.limit() == engine::kMaxLogitBias);
}

TEST_CASE("of a frame with many unknown bodies only the first is parsed") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame;
  google::protobuf::UnknownFieldSet& unknown = *frame.GetReflection()->MutableUnknownFields(&frame);
  unknown.AddLengthDelimited(99, std::string("\x10\x01", 2));  // its field 1 is missing
  for (int i = 0; i < 100000; ++i) unknown.AddLengthDelimited(100, std::string("\x08\x2a", 2));
  REQUIRE(client.send(frame));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 0);
  REQUIRE(refused.field() == "#99");
}

TEST_CASE("many Credit and Cancel frames reach the gateway as one credit and one cancel") {
  FakeServer server;
  server.gateway.keep_streams_on_cancel();
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_credit(1);
  REQUIRE(client.send(frame));
  server.gateway.wait_submitted(0);
  std::string flood;
  frame.mutable_credit()->set_stream(1);
  frame.mutable_credit()->set_tokens(3);
  for (int i = 0; i < 1000; ++i) flood += RawClient::frame_bytes(frame);
  frame.mutable_cancel()->set_stream(1);
  for (int i = 0; i < 1000; ++i) flood += RawClient::frame_bytes(frame);
  frame.mutable_health()->set_stream(2);
  flood += RawClient::frame_bytes(frame);
  REQUIRE(client.send_bytes(flood));
  REQUIRE(client.expect().has_health());  // all of it has been read
  REQUIRE(server.gateway.wait_credit(1, 3000) == 3000);
  REQUIRE(server.gateway.num_credit_calls() < 10);  // one per read, and the flood takes one or two
  REQUIRE(server.gateway.wait_cancelled(1).size() == 1);
}

TEST_CASE("questions above their largest size are refused with that size") {
  FakeServer server({.max_frame_bytes = 16u << 20});
  RawClient client(server.path());
  const v1::Welcome welcome = client.hello();
  REQUIRE(welcome.limits().max_detokenize_ids() == actors::kMaxDetokenizeIds);
  v1::ClientFrame ask;
  ask.mutable_detokenize()->set_stream(1);
  for (std::size_t i = 0; i < actors::kMaxDetokenizeIds; ++i) ask.mutable_detokenize()->add_ids('x');
  REQUIRE(client.send(ask));
  REQUIRE(client.expect().detokenized().raw().size() == actors::kMaxDetokenizeIds);
  ask.mutable_detokenize()->add_ids('x');
  REQUIRE(client.send(ask));
  v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.code() == v1::OUTCOME_TOO_LONG);
  REQUIRE(refused.field() == "ids");
  REQUIRE(refused.limit() == actors::kMaxDetokenizeIds);
  ask.mutable_tokenize()->set_stream(1);
  ask.mutable_tokenize()->set_text(std::string(actors::kMaxPromptBytes + 1, 'x'));
  REQUIRE(client.send(ask));
  refused = client.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.code() == v1::OUTCOME_TOO_LONG);
  REQUIRE(refused.field() == "text");
  REQUIRE(refused.limit() == actors::kMaxPromptBytes);
  v1::ClientFrame ids;
  ids.mutable_generate()->set_stream(1);
  ids.mutable_generate()->mutable_token_ids()->mutable_ids()->Resize(actors::kMaxPromptBytes / 4 + 1, 1);
  REQUIRE(client.send(ids));
  refused = client.expect().refused();
  REQUIRE(refused.code() == v1::OUTCOME_TOO_LONG);
  REQUIRE(refused.field() == "token_ids");
  REQUIRE(refused.limit() == actors::kMaxPromptBytes);
}

TEST_CASE("a question refused because the queue is full is told when to retry") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  actors::End full;
  full.outcome = Outcome::queue_full;
  full.message = "64 texts wait";
  full.field = "max_queued_texts";
  full.retry_after = std::chrono::seconds(1);
  server.gateway.fail_texts(full);
  v1::ClientFrame ask;
  ask.mutable_tokenize()->set_stream(1);
  REQUIRE(client.send(ask));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.code() == v1::OUTCOME_QUEUE_FULL);
  REQUIRE(refused.retry_after_ms() > 0);
  REQUIRE(refused.field() == "max_queued_texts");
  REQUIRE(refused.message() == "64 texts wait");
}

TEST_CASE("log lines of one kind are limited per second, and left-out ones are counted") {
  LogQuota quota;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kMaxLogLinesPerSecond; ++i) REQUIRE(quota.take(start) == 0);
  for (int i = 0; i < 1000; ++i) REQUIRE_FALSE(quota.take(start + std::chrono::milliseconds(999)));
  REQUIRE(quota.take(start + std::chrono::seconds(1)) == 1000);
  REQUIRE(quota.take(start + std::chrono::seconds(1)) == 0);
}

TEST_CASE("the log has the whole reason why a connection was ended") {
  std::ostringstream text;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  {
    FakeServer server;
    RawClient client(server.path());
    client.send_bytes("GET / HTTP/1.1\r\n\r\n");
    char bytes[4096];
    while (::recv(client.fd(), bytes, sizeof bytes, 0) > 0) continue;
  }
  spdlog::set_default_logger(before);
  INFO(text.str());
  REQUIRE(text.str().find("ended: HTTP/1.1 needs a Host field\n") != std::string::npos);
}

TEST_CASE("a client that is refused again and again does not fill the log") {
  std::ostringstream text;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  constexpr int kConnections = 500;
  {
    FakeServer server;
    for (int i = 0; i < kConnections; ++i) {
      RawClient client(server.path());
      client.send_bytes(std::string("\x03\x00\x00\x00\xff\xff\xff", 7));
      REQUIRE(client.last_words().field() == "frame");
    }
  }
  spdlog::set_default_logger(before);
  int lines = 0;
  for (const char c : text.str()) lines += c == '\n';
  REQUIRE(lines > 0);
  REQUIRE(lines < kConnections / 2);  // 5 per second: far fewer on any machine
}

TEST_CASE("a write that ends during stop() does not start the timer of timeouts again") {
  Hub hub({});
  hub.arm_tick();
  hub.stop_ticking();
  hub.io.poll();  // runs the handler of the cancelled timer
  hub.io.restart();
  hub.arm_tick();
  hub.io.poll();
  REQUIRE(hub.io.stopped());  // nothing is left to wait for
}

}  // namespace
}  // namespace troupe::ipc
