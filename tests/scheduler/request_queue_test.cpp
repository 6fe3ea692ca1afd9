#include "scheduler/request_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

using namespace troupe;
using namespace troupe::scheduler;

namespace {

Demand demand(std::uint64_t arrival, std::int32_t priority = 0, std::uint32_t uid = 1, std::uint32_t tokens = 10) {
  return {.uid = uid, .rank = {priority, arrival}, .deadline_ms = {}, .prompt_tokens = tokens, .max_tokens = 5};
}

void push(RequestQueue& queue, RequestNumber number, const Demand& d) { REQUIRE_FALSE(queue.push(number, d)); }

}  // namespace

TEST_CASE("without hits requests go in the order of priority, then arrival") {
  RequestQueue queue({});
  push(queue, 1, demand(1));
  push(queue, 2, demand(2, -1));
  push(queue, 3, demand(3));
  push(queue, 4, demand(4, 5));
  REQUIRE(queue.tokens() == 40);
  std::vector<RequestNumber> order;
  while (!queue.empty()) {
    const auto next = queue.peek();
    REQUIRE(queue.pick() == next);
    order.push_back(*next);
  }
  REQUIRE(order == std::vector<RequestNumber>{2, 1, 3, 4});
  REQUIRE_FALSE(queue.peek().has_value());
  REQUIRE_FALSE(queue.pick().has_value());
  REQUIRE(queue.tokens() == 0);
}

TEST_CASE("the longest known prefix goes first within its priority") {
  RequestQueue queue({});
  for (RequestNumber n = 1; n <= 4; ++n) push(queue, n, demand(n));
  push(queue, 5, demand(5, /*priority=*/1));
  queue.set_prediction(2, 64);
  queue.set_prediction(4, 96);
  queue.set_prediction(5, 960);
  queue.set_prediction(77, 960);  // nobody
  REQUIRE(queue.pick() == 4u);
  REQUIRE(queue.pick() == 2u);
  REQUIRE(queue.pick() == 1u);
  REQUIRE(queue.pick() == 3u);
  REQUIRE(queue.pick() == 5u);
}

TEST_CASE("a cold request is overtaken 32 times and not once more") {
  RequestQueue queue({});
  push(queue, 1, demand(1));
  for (RequestNumber n = 2; n <= 100; ++n) {
    push(queue, n, demand(n));
    queue.set_prediction(n, 64);
  }
  for (RequestNumber n = 2; n <= 33; ++n) REQUIRE(queue.pick() == n);
  REQUIRE(queue.pick() == 1u);
  REQUIRE(queue.pick() == 34u);
}

TEST_CASE("whatever is predicted, nobody is overtaken by more than 32 of its priority") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    RequestQueue queue({});
    std::map<RequestNumber, std::uint32_t> overtaken;  // those waiting
    RequestNumber last = 0;
    for (int i = 0; i < 3000; ++i) {
      if (random() % 2 == 0 && last < 1200) {
        ++last;
        push(queue, last, demand(last));
        queue.set_prediction(last, static_cast<std::uint32_t>(random() % 5) * 32);
        overtaken[last] = 0;
      } else if (const auto picked = queue.pick()) {
        overtaken.erase(*picked);
        for (auto& [number, count] : overtaken)
          if (number < *picked) REQUIRE(++count <= kMaxOvertaken);
      }
    }
    REQUIRE(queue.size() == overtaken.size());
  }
}

TEST_CASE("only those that may be picked are candidates") {
  RequestQueue queue({});
  std::vector<RequestNumber> candidates = {1, 2, 3};
  queue.candidates(candidates);
  REQUIRE(candidates.empty());
  for (RequestNumber n = 1; n <= 50; ++n) push(queue, n, demand(n));
  push(queue, 51, demand(51, -1));
  queue.candidates(candidates);
  REQUIRE(candidates == std::vector<RequestNumber>{51});
  REQUIRE(queue.pick() == 51u);
  queue.candidates(candidates);
  REQUIRE(candidates.size() == kMaxOvertaken + 1);
  REQUIRE((candidates.front() == 1 && candidates.back() == kMaxOvertaken + 1));
}

TEST_CASE("a full queue refuses and says which limit is met") {
  RequestQueue queue({.max_requests = 3, .max_tokens = 100, .max_requests_per_uid = 2});
  push(queue, 1, demand(1, 0, 7, 60));
  const auto tokens = queue.push(2, demand(2, 0, 7, 41));
  REQUIRE(tokens.has_value());
  REQUIRE(tokens->outcome == Outcome::queue_full);
  REQUIRE(tokens->limit == 100);
  REQUIRE(tokens->field == "max_queued_tokens");
  REQUIRE(tokens->message.find("41 more") != std::string::npos);
  push(queue, 2, demand(2, 0, 7, 10));
  const auto user = queue.push(3, demand(3, 0, 7, 1));
  REQUIRE(user.has_value());
  REQUIRE(user->outcome == Outcome::quota);
  REQUIRE(user->limit == 2);
  REQUIRE(user->field == "max_requests_per_user");
  push(queue, 3, demand(3, 0, 8, 1));
  const auto requests = queue.push(4, demand(4, 0, 9, 1));
  REQUIRE(requests.has_value());
  REQUIRE(requests->outcome == Outcome::queue_full);
  REQUIRE(requests->limit == 3);
  REQUIRE(requests->field == "max_queued_requests");
  REQUIRE(queue.remove(1));
  push(queue, 4, demand(4, 0, 7, 1));
}

TEST_CASE("a prompt longer than the limit of tokens may wait alone") {
  RequestQueue queue({.max_requests = 3, .max_tokens = 100, .max_requests_per_uid = 2});
  push(queue, 1, demand(1, 0, 7, 500));
  REQUIRE(queue.push(2, demand(2, 0, 7, 1)).has_value());
}

TEST_CASE("a preempted request comes back in front of younger ones, even into a full queue") {
  RequestQueue queue({.max_requests = 1});
  push(queue, 9, demand(9));
  queue.push_back_preempted(3, demand(3));
  REQUIRE(queue.size() == 2);
  REQUIRE(queue.pick() == 3u);
}

TEST_CASE("a request can be taken out while it waits") {
  RequestQueue queue({});
  push(queue, 1, demand(1));
  REQUIRE(queue.remove(1));
  REQUIRE_FALSE(queue.remove(1));
  REQUIRE(queue.empty());
}

TEST_CASE("requests expire at their deadline") {
  RequestQueue queue({});
  REQUIRE_FALSE(queue.next_deadline_ms().has_value());
  for (RequestNumber n = 1; n <= 4; ++n) {
    Demand d = demand(n);
    if (n > 1) d.deadline_ms = 1000 - 100 * n;
    push(queue, n, d);
  }
  REQUIRE(queue.next_deadline_ms() == 600u);
  std::vector<RequestNumber> expired;
  queue.expire(599, expired);
  REQUIRE(expired.empty());
  queue.expire(700, expired);
  REQUIRE(expired == std::vector<RequestNumber>{3, 4});
  REQUIRE(queue.next_deadline_ms() == 800u);
  queue.expire(10000, expired);
  REQUIRE(expired == std::vector<RequestNumber>{2});
  REQUIRE(queue.size() == 1);
}
