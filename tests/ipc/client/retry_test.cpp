// When the client library sends a refused request again. Against the real server: end_to_end_faults_test.cpp.
#include <future>
#include <set>

#include "ipc/client/client.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using client::Backoff;
using client::Ended;
using client::RetryPolicy;
using scheduler::Outcome;
using std::chrono::milliseconds;

Ended refused(Outcome outcome, std::optional<milliseconds> retry_after) {
  Ended ended;
  ended.outcome = outcome;
  ended.retry_after = retry_after;
  return ended;
}

TEST_CASE("delays begin with the server's retry_after, double up to max_delay, and are lengthened by at most half") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Backoff backoff({.max_retries = 6, .max_delay = milliseconds(5000), .seed = seed});
    for (const int base : {1000, 2000, 4000, 5000, 5000, 5000}) {
      const auto delay = backoff.next(refused(Outcome::queue_full, milliseconds(1000)));
      REQUIRE(delay);
      REQUIRE(*delay >= milliseconds(base));
      REQUIRE(*delay <= milliseconds(base + base / 2));
    }
    REQUIRE_FALSE(backoff.next(refused(Outcome::queue_full, milliseconds(1000))));
  }
}

TEST_CASE("the same seed gives the same delays, another seed others") {
  std::set<milliseconds> firsts;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Backoff one({.max_retries = 3, .seed = seed}), two({.max_retries = 3, .seed = seed});
    for (int i = 0; i < 3; ++i) {
      const auto delay = one.next(refused(Outcome::quota, milliseconds(1000)));
      REQUIRE(delay == two.next(refused(Outcome::quota, milliseconds(1000))));
      if (i == 0) firsts.insert(*delay);
    }
  }
  REQUIRE(firsts.size() > 50);
}

TEST_CASE("only refusals with a retry_after are sent again") {
  const RetryPolicy policy{.max_retries = 3};
  REQUIRE_FALSE(Backoff({}).next(refused(Outcome::queue_full, milliseconds(1))));  // off
  REQUIRE_FALSE(Backoff(policy).next(refused(Outcome::invalid_argument, std::nullopt)));
  REQUIRE_FALSE(Backoff(policy).next(refused(Outcome::queue_full, std::nullopt)));
  REQUIRE_FALSE(Backoff(policy).next(refused(Outcome::draining, milliseconds(1))));
  REQUIRE_FALSE(Backoff(policy).next(refused(Outcome::length, milliseconds(1))));
  REQUIRE_FALSE(Backoff(policy).next(refused(Outcome::worker_lost, milliseconds(1))));  // work had begun
  REQUIRE_FALSE(Backoff(policy).next(refused(Outcome::queue_full, milliseconds(30001))));
  REQUIRE(Backoff(policy).next(refused(Outcome::queue_full, milliseconds(0))) >= milliseconds(1));
}

actors::End full() {
  actors::End end = end_of(Outcome::queue_full);
  end.retry_after = milliseconds(1);
  return end;
}

TEST_CASE("complete sends a refused request again and returns the last answer") {
  FakeServer server;
  const auto client = client::Client::connect({.socket = server.path()});
  REQUIRE(client);
  auto answer = std::async(std::launch::async, [&] {
    return (*client)->complete({.prompt = "Once"}, std::nullopt, {.max_retries = 2, .seed = 1});
  });
  server.gateway.wait_submitted(0).sink->end(full());
  server.gateway.wait_submitted(1).sink->end(full());
  const auto third = server.gateway.wait_submitted(2);
  REQUIRE(std::get<std::string>(third.request.prompt) == "Once");
  third.sink->tokens(run_of(0, {1, 2}, "ab"));
  third.sink->end(end_of(Outcome::eos));
  const auto completion = answer.get();
  REQUIRE(completion);
  REQUIRE(completion->ended.outcome == Outcome::eos);
  REQUIRE(completion->text == "ab");
}

TEST_CASE("complete returns the refusal when retries or time are used up, by default at once") {
  FakeServer server;
  const auto client = client::Client::connect({.socket = server.path()});
  REQUIRE(client);
  const auto complete = [&](std::optional<milliseconds> timeout, const RetryPolicy& retry) {
    return std::async(std::launch::async, [&, timeout, retry] {
      const auto completion = (*client)->complete({.prompt = "Once"}, timeout, retry);
      return completion ? completion->ended.outcome : Outcome::internal;
    });
  };
  auto never = complete(std::nullopt, {});
  server.gateway.wait_submitted(0).sink->end(full());
  REQUIRE(never.get() == Outcome::queue_full);
  auto once = complete(std::nullopt, {.max_retries = 1});
  server.gateway.wait_submitted(1).sink->end(full());
  server.gateway.wait_submitted(2).sink->end(full());
  REQUIRE(once.get() == Outcome::queue_full);
  actors::End later = full();
  later.retry_after = std::chrono::minutes(5);  // beyond the timeout: nothing to wait for
  auto no_time = complete(kPatience, {.max_retries = 1, .max_delay = std::chrono::minutes(10)});
  server.gateway.wait_submitted(3).sink->end(later);
  REQUIRE(no_time.get() == Outcome::queue_full);
  REQUIRE(server.gateway.num_submitted() == 4);
}

TEST_CASE("the delay before a retry ends when the connection is lost") {
  FakeServer server;
  const auto client = client::Client::connect({.socket = server.path()});
  REQUIRE(client);
  auto answer = std::async(std::launch::async, [&] {
    return (*client)->complete({.prompt = "Once"}, std::nullopt,
                               {.max_retries = 1, .max_delay = std::chrono::hours(1)});
  });
  actors::End later = full();
  later.retry_after = std::chrono::minutes(30);
  server.gateway.wait_submitted(0).sink->end(later);
  server.server->stop();
  REQUIRE(answer.wait_for(kPatience) == std::future_status::ready);
  const auto completion = answer.get();
  REQUIRE_FALSE(completion);
  REQUIRE(completion.error().code == ErrorCode::io);
}

}  // namespace
}  // namespace troupe::ipc
