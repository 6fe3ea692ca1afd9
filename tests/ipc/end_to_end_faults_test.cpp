// Clients that misbehave over the real socket against the real server: how they are answered, and that other clients
// get exactly the answers that they would get alone.
#include <future>

#include "tests/ipc/real_server.h"
#include "tests/support/descriptors.h"

namespace troupe::ipc {
namespace {

using namespace test;
using client::Completion;
using client::Request;
using scheduler::Outcome;

const std::string kStory = "Once upon a time";

// Two well-behaved streams beside the misbehaviour: started before it, compared after it.
class Witnesses {
 public:
  explicit Witnesses(const RealServer& server) : client_(server.connect()) {
    for (std::uint64_t i = 0; i < kCount; ++i) references_.push_back(alone(*client_, request(i)));
    started_.resize(kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      auto stream = client_->generate(request(i), {.on_tokens =
                                                       [this, i](const client::Tokens& tokens) {
                                                         if (tokens.first_index == 0) started_[i].set_value();
                                                         collect(answers_[i], tokens);
                                                       },
                                                   .on_end = {}});
      REQUIRE(stream);
      streams_.push_back(*stream);
    }
    for (auto& started : started_) started.get_future().wait();
  }

  client::Client& client() { return *client_; }

  void require_undisturbed() {
    require_answers();
    require_at_rest(*client_);
  }

  // As above, while others still run.
  void require_answers() {
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto end = streams_[i].wait();
      REQUIRE(end);
      REQUIRE(end->outcome == Outcome::length);
      REQUIRE(same_bits(answers_[i], references_[i]));
    }
  }

 private:
  static constexpr std::size_t kCount = 2;

  static Request request(std::uint64_t i) { return seeded(i ? "The dog and the cat" : kStory, 300, 20 + i); }
  static void collect(Completion& answer, const client::Tokens& tokens) {
    answer.text += tokens.text;
    answer.ids.insert(answer.ids.end(), tokens.ids.begin(), tokens.ids.end());
    answer.logprobs.insert(answer.logprobs.end(), tokens.logprobs.begin(), tokens.logprobs.end());
  }

  std::unique_ptr<client::Client> client_;
  std::vector<Completion> references_;
  Completion answers_[kCount];
  std::vector<std::promise<void>> started_;
  std::vector<client::Stream> streams_;
};

v1::ClientFrame endless(std::uint64_t stream) {
  v1::ClientFrame frame = generate_frame(stream, "A long story about");
  frame.mutable_generate()->mutable_sampling()->set_ignore_eos(true);
  frame.mutable_generate()->mutable_sampling()->set_seed(stream);
  return frame;
}

TEST_CASE("end to end: a client that disappears in mid-stream frees what it held, and others are undisturbed") {
  RealServer server;
  Witnesses witnesses(server);
  {
    RawClient gone(server.path());
    gone.hello();
    for (std::uint64_t stream = 1; stream <= 4; ++stream) REQUIRE(gone.send(endless(stream)));
    REQUIRE(gone.expect().has_tokens());
  }
  wait_status(witnesses.client(), [](const auto& status) { return ended_as(status, "cancelled") == 4; });
  witnesses.require_undisturbed();
}

TEST_CASE("end to end: a cancel ends one stream with what it has, and others are undisturbed") {
  RealServer server;
  Witnesses witnesses(server);
  const auto client = server.connect();
  std::promise<void> some;
  std::size_t count = 0;
  Request request = seeded("A long story about", 900);
  auto stream = client->generate(request, {.on_tokens =
                                               [&](const client::Tokens& tokens) {
                                                 if (count < 3 && count + tokens.ids.size() >= 3) some.set_value();
                                                 count += tokens.ids.size();
                                               },
                                           .on_end = {}});
  REQUIRE(stream);
  some.get_future().wait();
  stream->cancel();
  const auto end = stream->wait();
  REQUIRE(end);
  REQUIRE(end->outcome == Outcome::cancelled);
  REQUIRE(end->usage.completion_tokens >= 3);
  REQUIRE(end->usage.completion_tokens < 900);
  witnesses.require_undisturbed();
}

TEST_CASE("end to end: a reader that grants no more credit is parked, and goes on where it was") {
  RealServer server;
  Witnesses witnesses(server);
  const auto client = server.connect();
  const Request request = seeded("A slow reader", 60);
  const Completion reference = alone(*client, request);
  Request slow = request;
  slow.credit = 5;
  std::promise<void> five;
  Completion got;
  auto stream = client->generate(slow, {.on_tokens =
                                            [&](const client::Tokens& tokens) {
                                              got.text += tokens.text;
                                              got.ids.insert(got.ids.end(), tokens.ids.begin(), tokens.ids.end());
                                              got.logprobs.insert(got.logprobs.end(), tokens.logprobs.begin(),
                                                                  tokens.logprobs.end());
                                              if (got.ids.size() == 5) five.set_value();
                                            },
                                        .on_end = {}});
  REQUIRE(stream);
  five.get_future().wait();
  wait_status(*client, [](const auto& status) { return status.count("requests_parked") == 1; });
  REQUIRE(got.ids.size() == 5);
  stream->credit(1000);
  REQUIRE(stream->wait()->outcome == Outcome::length);
  REQUIRE(same_bits(got, reference));
  witnesses.require_undisturbed();
}

TEST_CASE(
    "end to end: a client that does not read at all is parked when its socket is full, and is served when it does") {
  RealServer server;
  Witnesses witnesses(server);
  RawClient sloth(server.path());
  sloth.hello();
  for (std::uint64_t stream = 1; stream <= 3; ++stream) {
    v1::ClientFrame frame = endless(stream);
    frame.mutable_generate()->set_logprobs(20);  // some hundred bytes a token, so that the socket fills
    REQUIRE(sloth.send(frame));
  }
  witnesses.require_answers();
  wait_status(witnesses.client(), [](const auto& status) { return status.count("requests_parked") == 3; });
  std::uint64_t next[4] = {};
  int ended = 0;
  while (ended < 3) {
    const v1::ServerFrame frame = sloth.expect();
    if (frame.has_done()) {
      REQUIRE(frame.done().reason() == v1::OUTCOME_LENGTH);  // the context is full
      ++ended;
      continue;
    }
    REQUIRE(frame.has_tokens());
    REQUIRE(frame.tokens().first_index() == next[frame.tokens().stream()]);  // nothing lost, nothing twice
    next[frame.tokens().stream()] += static_cast<std::uint64_t>(frame.tokens().ids_size());
  }
  REQUIRE(next[1] > 900);
  witnesses.require_undisturbed();
}

TEST_CASE("end to end: a bad frame ends its own connection by name, and others are undisturbed") {
  RealServer server;
  Witnesses witnesses(server);
  RawClient bad(server.path());
  bad.hello();
  REQUIRE(bad.send(endless(1)));
  REQUIRE(bad.expect().has_tokens());
  REQUIRE(bad.send_bytes(std::string("\x05\x00\x00\x00nope!", 9)));
  REQUIRE(bad.last_words().field() == "frame");
  RawClient huge(server.path());
  huge.hello();
  REQUIRE(huge.send_bytes(std::string("\xff\xff\xff\x7f", 4)));
  REQUIRE(huge.last_words().field() == "max_frame_bytes");
  wait_status(witnesses.client(), [](const auto& status) {
    return ended_as(status, "cancelled") == 1 && status.count("connections_broken") == 2 &&
           status.count("connections") == 1;
  });
  witnesses.require_undisturbed();
}

TEST_CASE("end to end: a full queue refuses with its limit and a time to retry, and others are undisturbed") {
  actors::GatewayOptions options = embedded_model();
  options.max_sequences = 2;  // the witnesses
  options.max_queued_requests = 3;
  RealServer server(options);
  Witnesses witnesses(server);
  const auto client = server.connect();
  std::vector<client::Stream> streams;
  for (int i = 0; i < 8; ++i) {
    auto stream = client->generate(seeded(kStory, 4), {});
    REQUIRE(stream);
    streams.push_back(*stream);
  }
  int refused = 0, done = 0;
  for (const client::Stream& stream : streams) {
    const auto end = stream.wait();
    REQUIRE(end);
    if (end->done()) {
      ++done;
      continue;
    }
    ++refused;
    REQUIRE(end->outcome == Outcome::queue_full);
    REQUIRE(end->limit == 3);
    REQUIRE(end->field == "max_queued_requests");
    REQUIRE(end->retry_after);
    REQUIRE_FALSE(end->message.empty());
  }
  REQUIRE(done >= 3);
  REQUIRE(refused >= 1);
  witnesses.require_undisturbed();
}

TEST_CASE("end to end: a client that backs off gets its answer from a server whose queue was full") {
  actors::GatewayOptions options = embedded_model();
  options.max_sequences = 1;
  options.max_queued_requests = 1;
  RealServer server(options);
  const auto client = server.connect();
  const Request request = seeded(kStory, 8);
  const Completion reference = alone(*client, request);
  // One request runs and one waits: the queue is full, and stays full for hundreds of steps.
  std::promise<void> runs;
  std::vector<client::Stream> blockers;
  for (const bool is_first : {true, false}) {
    auto stream = client->generate(seeded("A long story about", 900), {.on_tokens =
                                                                           [&, is_first](const client::Tokens& tokens) {
                                                                             if (is_first && tokens.first_index == 0)
                                                                               runs.set_value();
                                                                           },
                                                                       .on_end = {}});
    REQUIRE(stream);
    blockers.push_back(*stream);
    if (is_first) runs.get_future().wait();
  }
  wait_status(*client, [](const auto& status) { return status.count("requests_waiting") == 1; });
  const auto waiter = server.connect();
  REQUIRE(complete(*waiter, request).ended.outcome == Outcome::queue_full);
  const auto answer =
      waiter->complete(request, kPatience, {.max_retries = 50, .max_delay = std::chrono::seconds(60), .seed = 3});
  REQUIRE(answer);
  REQUIRE(answer->ended.outcome == Outcome::length);
  REQUIRE(same_bits(*answer, reference));
  for (const client::Stream& stream : blockers) stream.cancel();
  for (const client::Stream& stream : blockers) REQUIRE(stream.wait());
  require_at_rest(*client);
}

// Each connection has two ends in this process.
bool can_open(std::size_t num_connections) {
  const rlim_t needed = 2 * num_connections + 128, allowed = troupe::test::take_descriptors();
  if (allowed >= needed) return true;
  WARN("skipped: needs " << needed << " descriptors, and " << allowed << " are allowed (ulimit -n)");
  return false;
}

TEST_CASE("end to end: 512 connections at once are served") {
  constexpr std::uint32_t kConnections = 512;
  if (!can_open(kConnections)) return;
  RealServer server(embedded_model(),
                    {.limits = {.max_connections = kConnections, .max_connections_per_uid = kConnections}});
  std::vector<std::unique_ptr<RawClient>> clients;
  while (clients.size() < kConnections) clients.push_back(std::make_unique<RawClient>(server.path()));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    clients[i]->hello();
    v1::ClientFrame frame = generate_frame(1, "Once upon a time");
    frame.mutable_generate()->mutable_sampling()->set_temperature(0);
    frame.mutable_generate()->mutable_sampling()->set_max_tokens(2);
    REQUIRE(clients[i]->send(frame));
  }
  std::string text;
  for (const auto& client : clients) {
    std::string own;
    v1::ServerFrame frame;
    while ((frame = client->expect()).has_tokens()) own += frame.tokens().text();
    REQUIRE(frame.done().reason() == v1::OUTCOME_LENGTH);
    if (text.empty()) text = own;
    REQUIRE(own == text);
  }
  RawClient one_more(server.path());
  REQUIRE(one_more.last_words().field() == "max_connections_per_uid");
}

TEST_CASE("end to end: of 512 connections at once those beyond the limit of a user are refused, each with its reason") {
  if (!can_open(512)) return;
  RealServer server(embedded_model(), {.limits = {.max_connections_per_uid = 64}});
  std::vector<std::unique_ptr<RawClient>> clients;
  while (clients.size() < 512) clients.push_back(std::make_unique<RawClient>(server.path()));
  std::uint32_t welcomed = 0, refused = 0;
  for (const auto& client : clients) {
    v1::ClientFrame hello;
    hello.mutable_hello()->set_protocol(1);
    client->send(hello);
    const v1::ServerFrame answer = client->expect();
    if (answer.has_welcome()) {
      ++welcomed;
      continue;
    }
    ++refused;
    REQUIRE(answer.refused().code() == v1::OUTCOME_QUOTA);
    REQUIRE(answer.refused().field() == "max_connections_per_uid");
    REQUIRE(answer.refused().limit() == 64);
    REQUIRE(answer.refused().retry_after_ms() > 0);
    REQUIRE_FALSE(client->receive());
  }
  REQUIRE(welcomed == 64);
  REQUIRE(refused == 512 - 64);
}

TEST_CASE("end to end: streams, connections and frames beyond the limits are refused, and others are undisturbed") {
  RealServer server(embedded_model(), {.limits = {.max_connections = 3, .max_streams = 4, .max_frame_bytes = 16000}});
  Witnesses witnesses(server);
  RawClient client(server.path());
  client.hello();
  for (std::uint64_t stream = 1; stream <= 5; ++stream) {
    v1::ClientFrame frame = endless(stream);
    frame.mutable_generate()->set_credit(0);
    REQUIRE(client.send(frame));
  }
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 5);
  REQUIRE(refused.field() == "max_streams");
  RawClient third(server.path());
  third.hello();
  RawClient fourth(server.path());
  REQUIRE(fourth.last_words().field() == "max_connections");
  third.send(generate_frame(1, std::string(16000, 'x')));
  REQUIRE(third.last_words().field() == "max_frame_bytes");
  client.hang_up();
  witnesses.require_undisturbed();
}

}  // namespace
}  // namespace troupe::ipc
