// One user's share of what all users share, through the real socket: other users are served at the same time.
#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/ipc/connect_as.h"
#include "tests/ipc/real_server.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

constexpr std::uint32_t kAnn = 23456;
constexpr std::uint32_t kBen = 23457;
constexpr std::uint32_t kCarl = 23458;

// A server that three guests may use.
struct SharedServer {
  explicit SharedServer(actors::GatewayOptions options)
      : real(std::move(options), {.allow_uids = {kAnn, kBen, kCarl}}) {
    REQUIRE(::chmod(real.dir.path().c_str(), 0711) == 0);
  }
  std::unique_ptr<client::Client> connect(std::uint32_t uid) const {
    const AsUser user(uid);
    return real.connect();
  }
  std::unique_ptr<RawClient> connect_raw(std::uint32_t uid) const {
    const AsUser user(uid);
    auto client = std::make_unique<RawClient>(real.path());
    client->hello();
    return client;
  }
  RealServer real;
};

v1::ClientFrame tokenize_frame(std::uint64_t stream, const std::string& text) {
  v1::ClientFrame frame;
  frame.mutable_tokenize()->set_stream(stream);
  frame.mutable_tokenize()->set_text(text);
  return frame;
}

TEST_CASE("end to end: one user's 160 texts of a megabyte from 40 connections delay no other user's request") {
  if (!may_be_others()) return;
  const SharedServer server(embedded_model());
  const auto ready = server.connect(0);
  wait_ready(*ready);
  std::vector<std::unique_ptr<RawClient>> flood;
  const std::string megabyte(1 << 20, 'a');
  for (int i = 0; i < 40; ++i) {
    flood.push_back(server.connect_raw(kAnn));
    for (std::uint64_t stream = 1; stream <= 4; ++stream) REQUIRE(flood.back()->send(tokenize_frame(stream, megabyte)));
  }
  const auto other = server.connect(kBen);
  for (int i = 0; i < 12; ++i) {
    const auto ids = other->tokenize("Once.");
    if (!ids) FAIL(ids.error().message);
    REQUIRE(other->detokenize({ids->back()}));
    client::Request request = seeded(std::string(5000, 'b'), 1);
    const auto answer = other->complete(request, kPatience);
    if (!answer) FAIL(answer.error().message);
    // Encoded, whether or not the model's context is long enough.
    REQUIRE((answer->ended.done() || answer->ended.outcome == Outcome::too_long));
  }
  // Requests beyond the share were refused, with the share and a time to retry.
  std::uint64_t refused = 0;
  for (std::uint64_t answers = 0; answers < 4; ++answers) {
    const v1::ServerFrame frame = flood.back()->expect();
    if (!frame.has_refused()) continue;
    ++refused;
    CHECK(frame.refused().code() == v1::OUTCOME_QUOTA);
    CHECK(frame.refused().field() == "max_queued_texts");
    CHECK(frame.refused().limit() == 16);
    CHECK(frame.refused().retry_after_ms() > 0);
  }
  CHECK(refused > 0);
}

TEST_CASE("end to end: parked streams of two guests keep no other user out, and the slowest is ended by name") {
  if (!may_be_others()) return;
  actors::GatewayOptions options = embedded_model();
  options.max_parked_requests = 16;
  const SharedServer server(options);
  client::Request slow = seeded("Once upon a time", 50);
  slow.credit = 1;
  std::vector<std::unique_ptr<client::Client>> guests;
  std::vector<client::Stream> streams;
  for (const std::uint32_t uid : {kAnn, kBen}) {
    guests.push_back(server.connect(uid));
    for (int i = 0; i < 8; ++i) {
      auto stream = guests.back()->generate(slow, {});
      REQUIRE(stream);
      streams.push_back(*stream);
    }
  }
  const auto owner = server.connect(0);
  const auto all_parked = [](const client::ServerStatus& status) {
    return status.count("requests_parked") == 16 &&
           status.count("requests_waiting") + status.count("requests_running") == 0;
  };
  wait_status(*owner, all_parked);
  for (client::Stream& stream : streams) stream.credit(1);
  wait_status(*owner, all_parked);
  const auto other = server.connect(kCarl);
  const client::Request request = seeded("Once upon a time", 8);
  REQUIRE(complete(*owner, request).ended.done());
  REQUIRE(complete(*other, request).ended.done());
  // The owner's slow stream is parked, too: one of the guests' is ended for it.
  auto third = other->generate(slow, {});
  REQUIRE(third);
  wait_status(*owner, [&](const client::ServerStatus& status) { return ended_as(status, "cancelled") == 1; });
  int ended = 0;
  for (client::Stream& stream : streams) {
    const auto end = stream.wait_for(std::chrono::milliseconds(0));
    if (!end) continue;
    ++ended;
    REQUIRE(*end);
    CHECK((*end)->outcome == Outcome::cancelled);
    CHECK((*end)->message.find("max_parked_requests") != std::string::npos);
  }
  CHECK(ended <= 1);  // it may still be on its way
  third->credit(1000);
  const auto end = third->wait();
  REQUIRE(end);
  CHECK((*end).done());
}

TEST_CASE("end to end: texts of a closed connection are not encoded, and its user's other requests are served") {
  if (!may_be_others()) return;
  actors::GatewayOptions options = embedded_model();
  options.tokenizer_threads = 1;
  options.max_queued_texts = 4096;
  options.max_queued_text_bytes = 4ull << 30;
  SharedServer server(options);
  const auto owner = server.connect(0);
  wait_ready(*owner);
  const std::string megabyte(1 << 20, 'a');
  for (int i = 0; i < 4; ++i) {
    const auto flood = server.connect_raw(kAnn);
    for (std::uint64_t stream = 1; stream <= 60; ++stream) REQUIRE(flood->send(tokenize_frame(stream, megabyte)));
    flood->hang_up();
  }
  // If it had to wait for the 240 texts before it, it would take a minute or two.
  const auto again = server.connect(kAnn);
  REQUIRE(again->tokenize(megabyte));
  server.real.server->stop();
  server.real.gateway.reset();  // and nothing is left to compute
}

}  // namespace
}  // namespace troupe::ipc
