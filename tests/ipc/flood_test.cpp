// Clients that ask faster than the server can answer, or than they read: the memory they take, and the service that
// other clients get.
#include <malloc.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ipc/frames/status_frame.h"
#include "ipc/frames/wire.h"
#include "ipc/hub.h"
#include "ipc/outbox.h"
#include "ipc/rate_limits.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

v1::ClientFrame health_frame(std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_health()->set_stream(stream);
  return frame;
}

v1::ClientFrame models_frame(std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_models()->set_stream(stream);
  return frame;
}

v1::ClientFrame status_frame_of(std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_status()->set_stream(stream);
  return frame;
}

// Growth of the heap when `count` of these are queued, divided by the bytes that the outbox counts.
template <class Make>
double grown(std::size_t count, Make make) {
  Outbox outbox(1ull << 40, any_share(), [] {});
  const std::size_t before = ::mallinfo2().uordblks;
  for (std::size_t i = 0; i < count; ++i) outbox.push({1, make()});
  const std::size_t after = ::mallinfo2().uordblks;
  return static_cast<double>(after - before) / static_cast<double>(outbox.bytes());
}

TEST_CASE("an outbox counts the bytes that the heap has grown by, for every kind of item") {
  if (::mallinfo2().uordblks == 0) {
    WARN("skipped: a sanitizer's allocator does not tell");
    return;
  }
  const auto fits = [](double share) { return share > 0.5 && share < 1.1; };
  const Refusal refusal{.outcome = Outcome::quota, .message = "wait", .field = "max_streams", .limit = 1};
  CHECK(fits(grown(20000, [&] { return EncodedAnswer{to_bytes(to_frame(1, refusal))}; })));
  CHECK(fits(grown(20000, [] { return EncodedAnswer{std::string(10, 'x')}; })));
  CHECK(fits(grown(200, [] { return EncodedAnswer{std::string(100000, 'x')}; })));
  CHECK(fits(grown(20000, [] { return run_of(0, {1}, "x"); })));
  CHECK(fits(grown(2000, [] { return run_of(0, std::vector<TokenId>(300, 7), std::string(1000, 'x')); })));
  CHECK(fits(grown(20000, [] { return std::make_unique<actors::End>(end_of(Outcome::eos)); })));
  CHECK(fits(grown(1000, [] {
    actors::TokenRun run = run_of(0, {1, 2}, "xy");
    run.logprobs.resize(2);
    for (auto& token : run.logprobs) token.top.resize(20);
    return run;
  })));
}

TEST_CASE("a client that asks and does not read is not read either, and gets every answer once it reads") {
  FakeServer server({.max_streams = 1u << 20, .max_outbox_bytes = 64u << 10, .max_questions_per_second = 1u << 30});
  RawClient client(server.path());
  client.hello();
  // Sends until the socket is full: the server has stopped reading.
  std::uint64_t asked = 0;
  std::string frame;
  do {
    frame = RawClient::frame_bytes(models_frame(++asked));
  } while (client.try_send(frame));
  std::thread rest([&] { REQUIRE(client.send_bytes(frame)); });
  for (std::uint64_t stream = 1; stream <= asked; ++stream) REQUIRE(client.expect().models().stream() == stream);
  rest.join();
}

TEST_CASE("unread answers above a user's share end its connections, and not those of other users") {
  const auto budget = std::make_shared<BufferBudget>(100000);
  const auto outbox_of = [&](std::uint32_t uid, bool is_owner) {
    return std::make_unique<Outbox>(
        1u << 20, std::make_unique<BufferShare>(budget, scheduler::Tenant{.id = TenantId{uid}, .is_owner = is_owner}),
        [] {});
  };
  const auto fill = [](Outbox& outbox, int count) {
    for (int i = 0; i < count; ++i) outbox.push({1, EncodedAnswer{std::string(1000, 'x')}});
  };
  const auto first = outbox_of(1000, false);
  auto second = outbox_of(1000, false);
  const auto neighbour = outbox_of(1001, false);
  const auto owner = outbox_of(0, true);
  fill(*first, 15);
  fill(*second, 15);  // a quarter of the budget is 25,000
  REQUIRE_FALSE(first->overflowed());
  REQUIRE(second->overflowed());
  REQUIRE(second->share_was_full());
  fill(*neighbour, 15);
  REQUIRE_FALSE(neighbour->overflowed());
  fill(*owner, 50);
  REQUIRE_FALSE(owner->overflowed());
  REQUIRE(budget->held() == first->bytes() + neighbour->bytes() + owner->bytes());
  (void)first->take(1u << 20);
  first->written();
  neighbour->close();
  owner->close_with({0, EncodedAnswer{"bye"}});
  REQUIRE(budget->held() == 0);
}

TEST_CASE("an outbox that holds nothing counts for another tenant from then on") {
  const auto budget = std::make_shared<BufferBudget>(100000);
  const auto outbox_of = [&](std::uint32_t uid) {
    return std::make_unique<Outbox>(
        1u << 20, std::make_unique<BufferShare>(budget, scheduler::Tenant{.id = TenantId{uid}}), [] {});
  };
  const auto fill = [](Outbox& outbox) {
    for (int i = 0; i < 15; ++i) outbox.push({1, EncodedAnswer{std::string(1000, 'x')}});
  };
  const auto first = outbox_of(1000), second = outbox_of(1000), third = outbox_of(1000);
  second->count_for({.id = TenantId{1001}});
  fill(*first);
  first->count_for({.id = TenantId{1002}});  // too late
  fill(*second);
  REQUIRE_FALSE(second->overflowed());
  fill(*third);
  REQUIRE(third->share_was_full());
  first->close();
  second->close();
  REQUIRE(budget->held() == 0);
}

TEST_CASE("large frames of one user wait for its share and are handled one after the other") {
  constexpr std::uint32_t kFrame = 12u << 20;
  FakeServer server({.max_frame_bytes = 16u << 20, .max_outbox_bytes = 1u << 30, .max_buffer_bytes = 64u << 20});
  v1::ClientFrame frame;
  frame.mutable_tokenize()->set_stream(1);
  frame.mutable_tokenize()->set_text(std::string(kFrame, 'x'));
  const std::string bytes = RawClient::frame_bytes(frame);
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  for (int i = 0; i < 4; ++i)  // of 32 MiB 24 are the owner's share
    clients.emplace_back([&] {
      RawClient client(server.path());
      client.hello();
      if (client.send_bytes(bytes) && client.expect().refused().code() == v1::OUTCOME_TOO_LONG) ++answered;
    });
  for (std::thread& client : clients) client.join();
  REQUIRE(answered == 4);
}

TEST_CASE("frames of other clients are handled between thousands of frames of one client") {
  FakeServer server;
  std::promise<void> go_on;
  server.gateway.stop_at_models(go_on);
  RawClient flood(server.path());
  flood.hello();
  RawClient other(server.path());
  other.hello();
  std::string bytes;
  for (std::uint64_t stream = 1; stream <= 2000; ++stream) bytes += RawClient::frame_bytes(models_frame(stream));
  REQUIRE(flood.send_bytes(bytes));
  REQUIRE(other.send(health_frame(1)));
  go_on.set_value();
  REQUIRE(other.expect().has_health());
  REQUIRE(server.gateway.num_models_before_health() <= 32);
}

TEST_CASE("control questions above a user's rate are refused with a time to retry") {
  FakeServer server({.max_questions_per_second = 1});
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(health_frame(1)));
  REQUIRE(client.expect().has_health());
  RawClient second(server.path());
  second.hello();
  for (const auto& frame : {health_frame(1), models_frame(2), status_frame_of(3)}) {
    REQUIRE(second.send(frame));
    const v1::ServerFrame answer = second.expect();
    REQUIRE(answer.refused().code() == v1::OUTCOME_QUOTA);
    REQUIRE(answer.refused().field() == "max_questions_per_second");
    REQUIRE(answer.refused().limit() == 1);
    REQUIRE(answer.refused().retry_after_ms() > 0);
    REQUIRE_FALSE(answer.refused().closing());
  }
  REQUIRE(second.send(generate_frame(4)));  // work has its own limits
  server.gateway.wait_submitted(0);
}

TEST_CASE("frames beyond a user's rate are read later, and none is lost") {
  FakeServer server({.max_frames_per_second = 1000});
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_credit(1);
  std::string bytes = RawClient::frame_bytes(frame);
  frame.mutable_credit()->set_stream(1);
  frame.mutable_credit()->set_tokens(3);
  for (int i = 0; i < 300; ++i) bytes += RawClient::frame_bytes(frame);
  bytes += RawClient::frame_bytes(health_frame(2));
  REQUIRE(client.send_bytes(bytes));
  REQUIRE(client.expect().has_health());
  REQUIRE(server.gateway.wait_credit(1, 900) == 900);
}

TEST_CASE("a client that disconnects while its frames wait is removed with its frames") {
  FakeServer server({.max_frames_per_second = 10});
  auto gone = std::make_unique<RawClient>(server.path());
  gone->hello();
  REQUIRE(gone->send(generate_frame(1)));
  const actors::RequestId id = server.gateway.wait_submitted(0).id;
  std::string bytes;
  for (std::uint64_t stream = 2; stream <= 2000; ++stream) bytes += RawClient::frame_bytes(models_frame(stream));
  REQUIRE(gone->send_bytes(bytes));  // minutes, at that rate
  gone.reset();
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{id});
}

TEST_CASE("a bucket gives its rate per second and a burst of a tenth of it") {
  const TokenBucket::TimePoint start{std::chrono::hours(1)};
  const auto at = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  TokenBucket bucket(100);
  const auto taken = [&](TokenBucket::TimePoint now) {
    int count = 0;
    while (bucket.take(now)) ++count;
    return count;
  };
  REQUIRE(taken(at(0)) == 10);
  REQUIRE(bucket.seconds_to_next(at(0)) == Approx(0.01));
  REQUIRE(taken(at(10)) == 1);
  REQUIRE(taken(at(5)) == 0);  // a clock that goes back gives nothing
  REQUIRE(taken(at(60)) == 5);
  REQUIRE(taken(at(100000)) == 10);
  bucket.set_rate(1000);
  REQUIRE(taken(at(100050)) == 50);
  TokenBucket slow(1);
  REQUIRE(slow.take(at(0)));
  REQUIRE_FALSE(slow.take(at(999)));
  REQUIRE(slow.take(at(1001)));
}

TEST_CASE("refusals in a row delay the tenant's next request, by a second at most") {
  using std::chrono::milliseconds;
  const RefusalPace::TimePoint start{std::chrono::hours(1)};
  RefusalPace pace(100);
  for (int i = 0; i < 500; ++i) {
    REQUIRE(pace.wait(start) == milliseconds(0));
    pace.refused(start);
  }
  REQUIRE(pace.wait(start) == milliseconds(0));  // these were free
  for (int i = 1; i <= 30; ++i) {
    pace.refused(start);
    REQUIRE(pace.wait(start) == milliseconds(10 * i));
  }
  REQUIRE(pace.wait(start + milliseconds(100)) == milliseconds(200));
  for (int i = 0; i < 10'000; ++i) pace.refused(start);
  REQUIRE(pace.wait(start) == milliseconds(1000));
  REQUIRE(pace.wait(start + milliseconds(1000)) == milliseconds(0));
  pace.set_rate(1000);
  REQUIRE(pace.wait(start) == milliseconds(100));
}

TEST_CASE(
    "a client that asks again at once after each refusal is held back, its cancels and its answers are not lost") {
  FakeServer server({.max_streams = 1});
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  const actors::RequestId id = server.gateway.wait_submitted(0).id;
  constexpr std::uint64_t kRefused = 560;
  const auto begin = Clock::now();
  std::string bytes;
  for (std::uint64_t stream = 2; stream < 2 + kRefused; ++stream)
    bytes += RawClient::frame_bytes(generate_frame(stream));
  v1::ClientFrame cancel;
  cancel.mutable_cancel()->set_stream(1);
  bytes += RawClient::frame_bytes(cancel);
  REQUIRE(client.send_bytes(bytes));
  for (std::uint64_t stream = 2; stream < 2 + kRefused; ++stream) {
    const v1::Refused refused = client.expect().refused();
    REQUIRE(refused.stream() == stream);
    REQUIRE(refused.field() == "max_streams");
  }
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{id});
  // 500 were free, the others came at 100 a second: a least time, which no slow machine can make wrong.
  REQUIRE(Clock::now() - begin >= std::chrono::milliseconds(500));
}

TEST_CASE("connections that are ended as broken again and again get their refusals ever later, and each gets its own") {
  FakeServer server({.max_refusals_per_second = 10});
  const auto refused = [&](const std::string& bytes) {
    RawClient client(server.path());
    REQUIRE(client.send_bytes(bytes));
    const v1::Refused answer = client.expect().refused();
    REQUIRE(answer.closing());
    return answer.field();
  };
  v1::ClientFrame old;
  old.mutable_hello()->set_protocol(0);
  const auto begin = Clock::now();
  for (int i = 0; i < 28; ++i) {
    REQUIRE(refused(std::string(8, '\0')) != "hello.protocol");
    REQUIRE(refused(RawClient::frame_bytes(old)) == "hello.protocol");
  }
  // 50 are free and one more waits for none; the other five come at 10 a second: a least time.
  REQUIRE(Clock::now() - begin >= std::chrono::milliseconds(450));
  // A connection that does as it should is served.
  RawClient other(server.path());
  other.hello();
}

TEST_CASE("a frame that arrives in small pieces is read ever more rarely, other frames at once") {
  ReadPace pace;
  const auto waits = [&](std::size_t bytes, bool frame_ended) { return pace.after_read(bytes, frame_ended).count(); };
  REQUIRE(waits(4, false) == 0);
  REQUIRE(waits(1, false) == 0);
  for (const int expected : {1, 2, 4, 8, 16, 16, 16}) REQUIRE(waits(1023, false) == expected);
  REQUIRE(waits(1024, false) == 0);
  REQUIRE(waits(1, false) == 16);
  REQUIRE(waits(1, true) == 0);
  for (int i = 0; i < 2; ++i) REQUIRE(waits(1, false) == 0);
  REQUIRE(waits(1, false) == 1);
  for (int i = 0; i < 1000; ++i) REQUIRE(waits(100, true) == 0);
}

TEST_CASE("a frame that is sent byte by byte is answered") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  for (const char byte : RawClient::frame_bytes(health_frame(7)) + RawClient::frame_bytes(models_frame(8)))
    REQUIRE(client.send_bytes(std::string(1, byte)));
  REQUIRE(client.expect().health().stream() == 7);
  REQUIRE(client.expect().models().stream() == 8);
}

TEST_CASE("one status query of the gateway answers all questions that came before it") {
  FakeServer server;
  server.gateway.hold_status();
  RawClient first(server.path());
  first.hello();
  REQUIRE(first.send(status_frame_of(1)));
  RawClient second(server.path());
  second.hello();
  for (std::uint64_t stream = 1; stream <= 50; ++stream) REQUIRE(second.send(status_frame_of(stream)));
  REQUIRE(second.send(health_frame(51)));
  REQUIRE(second.expect().has_health());  // all of it has been read
  server.gateway.release_status();
  REQUIRE(first.expect().status().model() == "fake");
  for (std::uint64_t stream = 1; stream <= 50; ++stream) REQUIRE(second.expect().status().stream() == stream);
  REQUIRE(server.gateway.num_status_calls() == 2);
}

// By kind and outcome.
using Seen = std::map<std::pair<std::string, std::string>, std::uint64_t>;

Seen seen_by(const v1::Status& status) {
  Seen seen;
  for (const v1::Status::Kind& kind : status.kinds())
    for (const v1::Status::Ended& ended : kind.ended()) seen[{kind.kind(), ended.outcome()}] = ended.count();
  return seen;
}

TEST_CASE("every request is counted once, by its kind and its outcome") {
  FakeServer server({.max_streams = 4});
  Seen expected;
  RawClient client(server.path());
  client.hello();
  const auto ask = [&](v1::ClientFrame frame, const std::string& kind, const std::string& outcome, int count = 1) {
    expected[{kind, outcome}] += static_cast<std::uint64_t>(count);
    REQUIRE(client.send(frame));
    (void)client.expect();
  };
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_n(0);
  ask(frame, "generate", "invalid_argument");
  frame = {};
  frame.mutable_cancel_request()->set_stream(1);
  ask(frame, "other", "invalid_argument");
  frame = generate_frame(1);
  frame.mutable_generate()->set_n(3);
  frame.mutable_generate()->set_priority(5000);
  ask(frame, "generate", "invalid_argument", 3);
  frame = generate_frame(1);
  for (int i = 0; i < 17; ++i) frame.mutable_generate()->add_stop("x");
  ask(frame, "generate", "invalid_argument");
  frame = {};
  frame.mutable_embed()->set_stream(1);
  ask(frame, "embed", "invalid_argument");
  frame = {};
  frame.mutable_tokenize()->set_stream(1);
  frame.mutable_tokenize()->set_text("abc");
  ask(frame, "tokenize", "eos");
  frame.mutable_tokenize()->set_model("another");
  ask(frame, "tokenize", "unknown_model");
  frame = {};
  frame.mutable_detokenize()->set_stream(1);
  frame.mutable_detokenize()->add_ids(65);
  ask(frame, "detokenize", "eos");
  ask(models_frame(1), "models", "eos");
  ask(health_frame(0), "health", "invalid_argument");
  ask(health_frame(1), "health", "eos");
  frame = {};
  frame.mutable_load_model()->set_stream(9);
  ask(frame, "other", "invalid_argument");  // it has no path
  ask({}, "other", "invalid_argument");

  // Three choices that end in three ways, and a request whose connection is closed.
  frame = generate_frame(1);
  frame.mutable_generate()->set_n(3);
  REQUIRE(client.send(frame));
  const auto sink = server.gateway.wait_submitted(0).sink;
  const Outcome outcomes[] = {Outcome::eos, Outcome::length, Outcome::internal};
  for (std::uint32_t choice = 0; choice < 3; ++choice) {
    actors::End end = end_of(outcomes[choice]);
    end.choice = choice;
    sink->end(end);
    (void)client.expect();
    ++expected[{"generate", std::string(scheduler::info(outcomes[choice]).name)}];
  }
  ask(generate_frame(0), "generate", "invalid_argument");
  {
    RawClient gone(server.path());
    gone.hello();
    frame.mutable_generate()->set_n(2);
    REQUIRE(gone.send(frame));
    frame = {};
    frame.mutable_embed()->set_stream(2);
    frame.mutable_embed()->add_texts("x");
    REQUIRE(gone.send(frame));
    server.gateway.wait_submitted(5);
  }
  server.gateway.wait_cancelled(3);
  expected[{"generate", "cancelled"}] += 2;
  expected[{"embed", "cancelled"}] += 1;
  // More requests at once than max_streams.
  for (std::uint64_t stream = 1; stream <= 4; ++stream) REQUIRE(client.send(generate_frame(stream)));
  ask(generate_frame(5), "generate", "quota");
  for (std::size_t i = 0; i < 4; ++i) server.gateway.wait_submitted(6 + i).sink->end(end_of(Outcome::draining));
  for (int i = 0; i < 4; ++i) REQUIRE(client.expect().refused().code() == v1::OUTCOME_DRAINING);
  expected[{"generate", "draining"}] += 4;

  REQUIRE(client.send(status_frame_of(1)));
  const v1::ServerFrame answer = client.expect();
  REQUIRE(seen_by(answer.status()) == expected);
  std::uint64_t received = 0, ended = 0;
  for (const v1::Status::Ended& each : answer.status().requests_ended()) ended += each.count();
  for (const auto& [what, count] : expected) received += what.first == "generate" || what.first == "embed" ? count : 0;
  REQUIRE(answer.status().requests_received() == received);
  REQUIRE(ended == received);
}

TEST_CASE("a guest's Status counts its own requests, and has nothing that depends on other users") {
  actors::StatusSnapshot status;
  status.model = "fake";
  status.num_threads = 3;
  status.weight_bytes = 5;
  actors::Latencies latencies;
  latencies.add(actors::Latency::step_duration, 1);
  latencies.append_metrics(status.metrics, actors::Latency::time_to_first_token, actors::Latency::cancel_latency);
  actors::StateMetrics{7, 7, 7}.append_metrics(status.metrics);
  actors::TokenMetrics{7, 7, 7}.append_metrics(status.metrics);
  for (const char* key : {"steps", "evictions", "blocks_free", "blocks_cached", "blocks_referenced", "resident_bytes",
                          "peak_resident_bytes"})
    status.metrics.counter(key, "Moved by others.", 7);
  status.metrics.gauge("ready", "For all.", 1, {.for_guests = true});
  status.memory = {{.kind = "heap", .bytes = 7, .peak_bytes = 7}};
  status.profile.emplace();
  for (std::uint32_t i = 0; i < 6; ++i)
    status.requests.push_back({.request = 100 + i,
                               .tenant = TenantId{1000 + i % 2},
                               .uid = 1000 + i % 2,
                               .state = actors::RequestState::running});

  StatusView view{.tenant = {TenantId{1001}, false}, .list_requests = true, .profile = true};
  for (std::uint64_t i = 0; i < 3; ++i) view.own[101 + 2 * i] = {.number = i + 1};
  v1::Status guest = status_frame(1, status, view).status();
  v1::Status expected;
  expected.set_stream(1);
  *expected.mutable_health() = guest.health();
  expected.set_own_only(true);
  expected.set_server(server_name());
  expected.set_model("fake");
  expected.set_num_threads(3);
  expected.set_weight_bytes(5);
  expected.set_requests_running(3);
  expected.mutable_histogram_bounds()->Add(actors::kLatencyBounds.begin(), actors::kLatencyBounds.end());
  std::map<std::string, double> metrics;
  for (const v1::Metric& metric : guest.metrics()) metrics.emplace(metric.name(), metric.value());
  REQUIRE(metrics == std::map<std::string, double>{{"build_info", 1},
                                                   {"ready", 1},
                                                   {"num_requests_running", 3},
                                                   {"num_requests_waiting", 0},
                                                   {"num_requests_parked", 0}});
  REQUIRE(guest.metrics_size() == static_cast<int>(metrics.size()));
  guest.clear_metrics();
  REQUIRE(guest.live_requests_size() == 3);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(guest.live_requests(i).uid() == 1001);
    REQUIRE(guest.live_requests(i).request() == static_cast<std::uint64_t>(i) + 1);
  }
  v1::Status without_list = guest;
  without_list.clear_live_requests();
  REQUIRE(without_list.SerializeAsString() == expected.SerializeAsString());

  const v1::Status owner =
      status_frame(1, status, {.tenant = {TenantId{0}, true}, .list_requests = true, .profile = true}).status();
  REQUIRE_FALSE(owner.own_only());
  REQUIRE(owner.requests_running() == 7);
  REQUIRE(owner.metrics_size() == static_cast<int>(status.metrics.size()) + 1);  // and build_info
  REQUIRE(owner.evictions() == 7);
  REQUIRE(owner.live_requests_size() == 6);
  REQUIRE(owner.live_requests(0).request() == 100);
  REQUIRE(owner.histograms_size() > 0);
  REQUIRE(owner.has_profile());
}

}  // namespace
}  // namespace troupe::ipc
