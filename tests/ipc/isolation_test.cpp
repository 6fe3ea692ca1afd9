// All that a guest is told, field by field, on a server where another user does nothing and on one where it keeps the
// server busy: the same bytes, but for the times that are named here.
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/ipc/connect_as.h"
#include "tests/ipc/real_server.h"

namespace troupe::ipc {
namespace {

using namespace test;

constexpr std::uint32_t kBusyUid = 34567;    // whose work must not show
constexpr std::uint32_t kAskingUid = 34568;  // that looks

// Longer than a block, so that a second request of the same tenant finds it cached.
const std::string kPrompt =
    "Once upon a time there was a girl who had a red ball, and a dog who wanted to have it. They went to the park "
    "with her mother, and they played there until it was dark and all of them had to go home.";

// Takes out what depends on how fast the server is: the times of answers, the age of requests and of the server, and
// what of the computing was the tenant's, as it is measured.
// Of a receipt all but the tokens is time, or follows from it: preempted sequences compute tokens again.
void clear_times(v1::ServerFrame& frame) {
  if (frame.has_done()) {
    v1::Receipt counts;
    counts.set_prompt_tokens(frame.done().receipt().prompt_tokens());
    counts.set_cached_tokens(frame.done().receipt().cached_tokens());
    frame.mutable_done()->clear_timings();
    *frame.mutable_done()->mutable_receipt() = counts;
  }
  if (!frame.has_status()) return;
  v1::Status& status = *frame.mutable_status();
  status.clear_uptime_seconds();
  for (v1::Status::LiveRequest& request : *status.mutable_live_requests()) request.clear_age_seconds();
  for (v1::Metric& metric : *status.mutable_metrics()) {
    if (metric.name() == "uptime_seconds" || metric.name() == "tenant_compute_seconds") metric.clear_value();
    if (metric.kind() != v1::Metric::KIND_HISTOGRAM) continue;
    metric.clear_value();
    metric.clear_counts();
  }
}

// A server that both users may use, and what the asking one is told.
class IsolationServer {
 public:
  IsolationServer() : real_(options(), {.allow_uids = {kBusyUid, kAskingUid}}) {
    REQUIRE(::chmod(real_.dir.path().c_str(), 0711) == 0);
    owner_ = real_.connect();
    wait_ready(*owner_);
  }
  ~IsolationServer() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  // The busy user's streams, some of them parked, go on until the end; all their prompts are the asking user's.
  void keep_busy() {
    for (int i = 0; i < 4; ++i) {
      threads_.emplace_back([this, client = connect_client(kBusyUid)] {
        while (!stop_) (void)client->complete(seeded(kPrompt, 200), kPatience);
      });
    }
    parked_ = connect(kBusyUid);
    for (std::uint64_t stream = 1; stream <= 5; ++stream) start_parked(*parked_, stream);
    wait_status(*owner_, [](const client::ServerStatus& status) {
      return status.count("requests_parked") == 5 && status.count("steps") > 50;
    });
  }

  // Frames of the asking user's only connection, one after the other.
  std::vector<std::string> told_to_guest() {
    std::vector<std::string> told;
    asking_ = connect(kAskingUid, &told);
    v1::ClientFrame ask;
    const auto ask_and_note = [&](std::uint64_t stream) {
      REQUIRE(asking_->send(ask));
      told.push_back(answer_to(stream));
      ask.Clear();
    };
    for (const std::uint64_t request : {1, 2, 5, 9, 12, 1000}) {
      ask.mutable_cancel_request()->set_stream(1);
      ask.mutable_cancel_request()->set_request(request);
      ask_and_note(1);
    }
    for (int round = 0; round < 2; ++round) {  // the second round finds the prompt of the first one cached
      ask.mutable_health()->set_stream(1);
      ask_and_note(1);
      ask.mutable_models()->set_stream(1);
      ask_and_note(1);
      ask = generate_frame(1, kPrompt);
      ask.mutable_generate()->mutable_sampling()->set_temperature(0);
      ask.mutable_generate()->mutable_sampling()->set_seed(1);
      ask.mutable_generate()->mutable_sampling()->set_max_tokens(9);
      ask_and_note(1);
      ask = generate_frame(1, kPrompt);
      ask.mutable_generate()->set_n(13);  // more than max_requests_per_user
      ask_and_note(1);
      ask = generate_frame(1, kPrompt);
      ask.mutable_generate()->set_model("another");
      ask_and_note(1);
      ask.mutable_tokenize()->set_stream(1);
      ask.mutable_tokenize()->set_text(kPrompt);
      ask_and_note(1);
      note_status(1, told);
    }
    start_parked(*asking_, 2);
    wait_status(
        *owner_,
        [](const client::ServerStatus& status) {
          for (const client::LiveRequest& request : status.live_requests)
            if (request.uid == kAskingUid && request.state == "parked") return true;
          return false;
        },
        /*list_requests=*/true);
    note_status(1, told);
    return told;
  }

 private:
  static actors::GatewayOptions options() {
    actors::GatewayOptions options = embedded_model();
    options.max_requests_per_user = 12;
    return options;
  }
  std::unique_ptr<client::Client> connect_client(std::uint32_t uid) const {
    const AsUser user(uid);
    return real_.connect();
  }
  std::unique_ptr<RawClient> connect(std::uint32_t uid, std::vector<std::string>* told = nullptr) const {
    const AsUser user(uid);
    auto client = std::make_unique<RawClient>(real_.path());
    const v1::Welcome welcome = client->hello();
    if (told) told->push_back(welcome.DebugString());
    return client;
  }
  template <class Settled>
  static void wait_status(client::Client& client, Settled settled, bool list_requests = false) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      const auto status = client.status(list_requests);
      REQUIRE(status);
      if (settled(*status)) return;
      REQUIRE(std::chrono::steady_clock::now() < give_up);
      std::this_thread::yield();
    }
  }
  // With credit for one token, and no more.
  static void start_parked(RawClient& client, std::uint64_t stream) {
    v1::ClientFrame frame = generate_frame(stream, kPrompt);
    frame.mutable_generate()->set_credit(1);
    frame.mutable_generate()->mutable_sampling()->set_ignore_eos(true);
    frame.mutable_generate()->mutable_sampling()->set_seed(1);
    REQUIRE(client.send(frame));
  }
  void note_status(std::uint64_t stream, std::vector<std::string>& told) {
    v1::ClientFrame ask;
    ask.mutable_status()->set_stream(stream);
    ask.mutable_status()->set_list_requests(true);
    ask.mutable_status()->set_profile(true);
    REQUIRE(asking_->send(ask));
    told.push_back(answer_to(stream));
  }
  // The last frame of the answer, and before it what the Tokens frames bring together: how they are cut depends on how
  // fast the client reads.
  std::string answer_to(std::uint64_t stream) {
    v1::Tokens tokens;
    for (;;) {
      v1::ServerFrame frame = asking_->expect();
      if (!frame.has_tokens()) {
        clear_times(frame);
        return tokens.DebugString() + frame.DebugString();
      }
      if (frame.tokens().stream() != stream) continue;
      tokens.mutable_ids()->MergeFrom(frame.tokens().ids());
      *tokens.mutable_text() += frame.tokens().text();
    }
  }

  RealServer real_;
  std::unique_ptr<client::Client> owner_;
  std::unique_ptr<RawClient> parked_, asking_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST_CASE("end to end: what a guest is told is the same bytes whether another user does nothing or fills the server") {
  if (!may_be_others()) return;
  IsolationServer idle;
  const std::vector<std::string> expected = idle.told_to_guest();
  IsolationServer busy;
  busy.keep_busy();
  const std::vector<std::string> told = busy.told_to_guest();
  REQUIRE(told.size() == expected.size());
  for (std::size_t i = 0; i < told.size(); ++i) CHECK(told[i] == expected[i]);
}

}  // namespace
}  // namespace troupe::ipc
