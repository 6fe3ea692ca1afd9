// Clients that vanish and requests that are cancelled, by the hundred and in every phase of a request, against the
// real server: each request ends exactly once, all its blocks are freed, and other clients' answers do not change.
//
// TROUPE_CHURN sets how many of each (default 60, with sanitizers 24; 1,000 is what docs/numbers.md reports).
#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "tests/ipc/real_server.h"
#include "tests/support/sanitized.h"

namespace troupe::ipc {
namespace {

using namespace test;
using client::Completion;
using client::Request;

std::size_t churn() {
  const char* wanted = std::getenv("TROUPE_CHURN");
  return wanted ? std::strtoull(wanted, nullptr, 10) : troupe::test::kSanitized ? 24 : 60;
}

// Where a request is when it is cancelled, or its client vanishes.
enum class Phase { received, encoding, queued, prefill, decode, writing };
constexpr std::array kPhases{Phase::received, Phase::encoding, Phase::queued,
                             Phase::prefill,  Phase::decode,   Phase::writing};

// Few places and a short step, so that requests wait and prefill takes several steps.
actors::GatewayOptions narrow() {
  actors::GatewayOptions options = embedded_model();
  options.max_sequences = 4;
  options.max_step_tokens = 64;
  options.model().load.num_blocks = 128;
  return options;
}

v1::ClientFrame request_in(Phase phase, std::uint64_t stream, std::mt19937_64& random) {
  v1::ClientFrame frame = generate_frame(stream, "A story about " + std::to_string(random() % 1000));
  v1::Generate& generate = *frame.mutable_generate();
  generate.mutable_sampling()->set_seed(random());
  generate.mutable_sampling()->set_ignore_eos(true);
  generate.mutable_sampling()->set_max_tokens(static_cast<std::uint32_t>(200 + random() % 200));
  if (phase == Phase::encoding) {  // over 4 KiB goes to a tokenizer thread; 600 tokens in this vocabulary
    generate.clear_text();
    while (generate.text().size() < 4200) *generate.mutable_text() += " beautiful";
  } else if (phase == Phase::prefill) {
    for (int i = 0; i < 600; ++i)
      generate.mutable_token_ids()->add_ids(static_cast<std::int32_t>(300 + random() % 1700));
  } else if (phase == Phase::writing) {
    generate.set_logprobs(20);  // much to write
  }
  return frame;
}

void ask_health(RawClient& client, std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_health()->set_stream(stream);
  REQUIRE(client.send(frame));
}

// Waits until a request that was sent on `client` is near its phase, going by the server's answers and not by the
// clock. Frames of other streams that arrive meanwhile are passed to `seen`.
template <class Seen>
void advance(RawClient& client, Phase phase, std::uint64_t stream, std::uint64_t& next_question,
             std::mt19937_64& random, Seen seen) {
  // After so many answered control messages the request is in the intake, in the tokenizers, in the batcher.
  std::uint64_t rounds = phase == Phase::received ? 0 : 1 + random() % (phase == Phase::prefill ? 8 : 2);
  std::uint64_t tokens = phase == Phase::decode || phase == Phase::writing ? 1 + random() % 8 : 0;
  bool ended = false;
  while (!ended && (rounds > 0 || tokens > 0)) {
    if (rounds > 0) ask_health(client, ++next_question);
    for (bool answered = false; !answered && !ended;) {
      const v1::ServerFrame frame = client.expect();
      seen(frame);
      if (frame.has_health()) {
        answered = true;
        if (rounds > 0) --rounds;  // else the answer to a question that an end overtook
      } else if (frame.has_tokens() && frame.tokens().stream() == stream) {
        tokens -= std::min<std::uint64_t>(tokens, static_cast<std::uint64_t>(frame.tokens().ids_size()));
        answered = rounds == 0;
      } else {
        ended = (frame.has_done() && frame.done().stream() == stream) ||
                (frame.has_refused() && frame.refused().stream() == stream);
      }
    }
  }
}

// A well-behaved client that repeats one request until told to stop: each answer is the one it gets alone.
class Control {
 public:
  explicit Control(const RealServer& server) : client_(server.connect()) {
    reference_ = alone(*client_, request_);
    thread_ = std::thread([this] {
      do {
        const auto answer = client_->complete(request_, kPatience);
        equal_ = equal_ && answer && same_bits(*answer, reference_);
        ++answers_;
      } while (!stop_);
    });
  }
  ~Control() { join(); }

  void require_undisturbed() {
    join();
    INFO("answers: " << answers_);
    REQUIRE(answers_ > 0);
    REQUIRE(equal_);
    require_at_rest(*client_);
    // The io thread notices closed connections one after the other; this status request is a stream, too.
    const client::ServerStatus status = wait_status(*client_, [](const auto& s) { return s.count("streams") == 1; });
    std::uint64_t ended = 0;
    for (const auto& [outcome, count] : status.requests_ended) ended += count;
    REQUIRE(ended == status.count("requests_received"));  // each exactly once
  }
  client::Client& client() { return *client_; }
  std::uint64_t requests() const { return answers_ + 1; }

 private:
  void join() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  const Request request_ = seeded("The dog and the cat", 60, 77);
  std::unique_ptr<client::Client> client_;
  Completion reference_;
  std::atomic<bool> stop_{false};
  bool equal_ = true;          // the thread's until it is joined
  std::uint64_t answers_ = 0;  // the thread's until it is joined
  std::thread thread_;
};

TEST_CASE("churn: requests cancelled in every phase end exactly once, and others are undisturbed") {
  constexpr std::uint64_t kWave = 12;  // streams at once: more than there are places
  RealServer server(narrow());
  Control control(server);
  RawClient client(server.path());
  client.hello();
  std::mt19937_64 random(1);
  std::uint64_t next_stream = 0, sent = 0;
  std::map<std::uint64_t, int> ends;  // by stream, of Generate
  const auto seen = [&](const v1::ServerFrame& frame) {
    if (frame.has_done()) ++ends[frame.done().stream()];
    REQUIRE_FALSE(frame.has_refused());
    REQUIRE_FALSE(frame.has_failed());
  };
  const std::size_t total = churn();
  while (sent < total) {
    std::vector<std::pair<std::uint64_t, Phase>> wave;
    for (std::uint64_t i = 0; i < kWave && sent < total; ++i, ++sent) {
      const Phase phase = kPhases[sent % kPhases.size()];
      wave.emplace_back(++next_stream, phase);
      REQUIRE(client.send(request_in(phase, next_stream, random)));
      if (phase != Phase::received) continue;
      v1::ClientFrame cancel;
      cancel.mutable_cancel()->set_stream(next_stream);
      REQUIRE(client.send(cancel));
    }
    std::shuffle(wave.begin(), wave.end(), random);
    for (const auto& [stream, phase] : wave) {
      if (ends[stream] == 0) advance(client, phase, stream, next_stream, random, seen);
      v1::ClientFrame cancel;
      cancel.mutable_cancel()->set_stream(stream);  // again where it was received so: ignored
      REQUIRE(client.send(cancel));
    }
    for (const auto& [stream, phase] : wave)
      while (ends[stream] == 0) seen(client.expect());
  }
  ask_health(client, ++next_stream);
  for (v1::ServerFrame frame; !frame.has_health();) seen(frame = client.expect());  // no second end is on its way
  std::size_t ended = 0;
  for (const auto& [stream, count] : ends) {
    REQUIRE(count <= 1);
    ended += static_cast<std::size_t>(count);
  }
  REQUIRE(ended == total);
  control.require_undisturbed();
  const client::ServerStatus status = *control.client().status();
  REQUIRE(status.count("requests_received") == total + control.requests());
  REQUIRE(ended_as(status, "cancelled") > total / 2);  // the others were quicker than their cancel
}

TEST_CASE("churn: clients that vanish in every phase leave no request and no block, and others are undisturbed") {
  RealServer server(narrow());
  Control control(server);
  std::mt19937_64 random(2);
  for (std::size_t i = 0; i < churn(); ++i) {
    const Phase phase = kPhases[i % kPhases.size()];
    RawClient client(server.path());
    client.hello();
    std::uint64_t next_stream = 1 + random() % 4;
    for (std::uint64_t stream = 1; stream <= next_stream; ++stream)
      REQUIRE(client.send(request_in(phase, stream, random)));
    // Some connections close in the middle of a frame.
    if (random() % 4 == 0) REQUIRE(client.send_bytes(RawClient::frame_bytes(generate_frame(9)).substr(0, 7)));
    if (random() % 4 == 0) continue;
    advance(client, phase, 1, next_stream, random, [](const v1::ServerFrame&) {});
  }
  control.require_undisturbed();
  const client::ServerStatus status =
      wait_status(control.client(), [](const auto& s) { return s.count("connections") == 1; });
  REQUIRE(status.count("connections_accepted") == churn() + 1);
  REQUIRE(status.count("connections_broken") == 0);
}

}  // namespace
}  // namespace troupe::ipc
