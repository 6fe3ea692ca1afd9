#include "scheduler/shares/fair_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

using namespace troupe;
using namespace troupe::scheduler;

namespace {

Demand demand(std::uint64_t arrival, std::int32_t priority = 0, std::uint32_t uid = 1, std::uint32_t tokens = 10) {
  return {.tenant = TenantId{uid}, .priority = priority, .arrival = arrival, .prompt_tokens = tokens, .max_tokens = 5};
}

}  // namespace

TEST_CASE("without hits requests go in the order of priority, then arrival") {
  const FairShares shares;
  FairQueue queue(shares);
  queue.push(1, demand(1));
  queue.push(2, demand(2, -1));
  queue.push(3, demand(3));
  queue.push(4, demand(4, 5));
  std::vector<RequestNumber> order;
  while (!queue.empty()) {
    const auto next = queue.peek();
    REQUIRE(queue.pick() == next);
    order.push_back(*next);
  }
  REQUIRE(order == std::vector<RequestNumber>{2, 1, 3, 4});
  REQUIRE_FALSE(queue.peek().has_value());
  REQUIRE_FALSE(queue.pick().has_value());
}

TEST_CASE("the longest known prefix goes first within its priority") {
  const FairShares shares;
  FairQueue queue(shares);
  for (RequestNumber n = 1; n <= 4; ++n) queue.push(n, demand(n));
  queue.push(5, demand(5, /*priority=*/1));
  queue.set_prediction(2, 64);
  queue.set_prediction(4, 96);
  queue.set_prediction(5, 960);
  queue.set_prediction(77, 960);  // an unknown request
  REQUIRE(queue.pick() == 4u);
  REQUIRE(queue.pick() == 2u);
  REQUIRE(queue.pick() == 1u);
  REQUIRE(queue.pick() == 3u);
  REQUIRE(queue.pick() == 5u);
}

TEST_CASE("a cold request is overtaken 32 times and not once more") {
  const FairShares shares;
  FairQueue queue(shares);
  queue.push(1, demand(1));
  for (RequestNumber n = 2; n <= 100; ++n) {
    queue.push(n, demand(n));
    queue.set_prediction(n, 64);
  }
  for (RequestNumber n = 2; n <= 33; ++n) REQUIRE(queue.pick() == n);
  REQUIRE(queue.pick() == 1u);
  REQUIRE(queue.pick() == 34u);
}

TEST_CASE("whatever is predicted, a request is overtaken by at most 32 of its priority") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    const FairShares shares;
    FairQueue queue(shares);
    std::map<RequestNumber, std::uint32_t> overtaken;  // those waiting
    RequestNumber last = 0;
    for (int i = 0; i < 3000; ++i) {
      if (random() % 2 == 0 && last < 1200) {
        ++last;
        queue.push(last, demand(last));
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
  const FairShares shares;
  FairQueue queue(shares);
  std::vector<RequestNumber> candidates = {1, 2, 3};
  queue.candidates(candidates);
  REQUIRE(candidates.empty());
  for (RequestNumber n = 1; n <= 50; ++n) queue.push(n, demand(n));
  queue.push(51, demand(51, -1));
  queue.candidates(candidates);
  REQUIRE(candidates == std::vector<RequestNumber>{51});
  REQUIRE(queue.pick() == 51u);
  queue.candidates(candidates);
  REQUIRE(candidates.size() == kMaxOvertaken + 1);
  REQUIRE((candidates.front() == 1 && candidates.back() == kMaxOvertaken + 1));
}

TEST_CASE("a preempted request comes back in front of younger ones") {
  const FairShares shares;
  FairQueue queue(shares);
  queue.push(9, demand(9));
  queue.push(3, demand(3));
  REQUIRE(queue.size() == 2);
  REQUIRE(queue.pick() == 3u);
}

TEST_CASE("a waiting request can be removed") {
  const FairShares shares;
  FairQueue queue(shares);
  queue.push(1, demand(1));
  REQUIRE(queue.remove(1));
  REQUIRE_FALSE(queue.remove(1));
  REQUIRE(queue.empty());
}

TEST_CASE("a tenant with as many places and claims as its max_running is passed over") {
  FairShares shares;
  FairQueue queue(shares);
  Demand limited = demand(1, 0, /*uid=*/1);
  limited.limits.max_running = 2;
  queue.push(1, limited);
  queue.push(2, demand(2, 0, /*uid=*/2));
  REQUIRE(queue.peek() == 1u);
  shares.take_place(TenantId{1});
  shares.claim_place(TenantId{1});
  for (int i = 0; i < 5; ++i) shares.claim_place(TenantId{2});  // more than the other has
  std::vector<RequestNumber> candidates;
  queue.candidates(candidates);
  REQUIRE(candidates == std::vector<RequestNumber>{2});
  REQUIRE(queue.pick() == 2u);
  REQUIRE_FALSE(queue.peek());
  REQUIRE_FALSE(queue.pick());
  queue.candidates(candidates);
  REQUIRE(candidates.empty());
  REQUIRE(queue.size() == 1);
  shares.withdraw_claim(TenantId{1});
  REQUIRE(queue.pick() == 1u);
}

TEST_CASE("requests with a deadline go first, least slack first, but not before a more urgent priority") {
  const FairShares shares;
  FairQueue queue(shares);
  const auto due = [](std::uint64_t arrival, double seconds, std::int32_t priority = 0) {
    Demand with = demand(arrival, priority);
    with.due_seconds = seconds;
    return with;
  };
  queue.push(1, demand(1));
  queue.push(2, due(2, 9));
  queue.push(3, demand(3, -1));
  queue.push(4, due(4, 5));
  queue.push(5, due(5, 1, 1));
  queue.push(6, due(6, 5));
  queue.set_prediction(1, 960);
  std::vector<RequestNumber> order;
  while (const auto next = queue.pick()) order.push_back(*next);
  CHECK(order == std::vector<RequestNumber>{3, 4, 6, 2, 1, 5});
}

TEST_CASE("more urgent requests that come for ever starve none: after 128 of them it has their priority") {
  const FairShares shares;
  FairQueue queue(shares);
  queue.push(1, demand(1, 5));
  queue.push(2, demand(2, 9));
  std::vector<RequestNumber> picks;
  std::int32_t priority = 0;
  for (RequestNumber n = 3; n < 200; ++n) {
    queue.push(n, demand(n, -2));
    picks.push_back(*queue.pick(&priority));
    CHECK(priority == -2);
  }
  CHECK(std::ranges::find(picks, RequestNumber{1}) - picks.begin() == kMaxPassed);
  CHECK(std::ranges::find(picks, RequestNumber{2}) - picks.begin() == kMaxPassed + 1);
}

TEST_CASE("after 32 requests with deadlines one of the others has its turn, wherever it is in the queue") {
  const FairShares shares;
  FairQueue queue(shares);
  const auto push = [&](RequestNumber number, bool has_deadline) {
    Demand with = demand(number);
    if (has_deadline) with.due_seconds = static_cast<double>(number);
    queue.push(number, with);
  };
  for (RequestNumber n = 1; n <= 50; ++n) push(n, true);
  push(51, false);
  push(52, false);
  std::vector<RequestNumber> others;
  for (RequestNumber n = 53; n < 153; ++n) {
    push(n, true);  // they come as fast as they go
    const RequestNumber picked = *queue.pick();
    if (picked == 51 || picked == 52) others.push_back(n - 52);
  }
  CHECK(others == std::vector<RequestNumber>{33, 66});  // the how-many-eth pick
}
TEST_CASE("requests of a tenant that may not be admitted wait, and keep no others waiting") {
  FairShares shares;
  bool may_admit = false;
  FairQueue queue(shares, [&](TenantId tenant) { return may_admit || tenant != TenantId{1}; });
  queue.push(1, {.tenant = TenantId{1}, .arrival = 1, .prompt_tokens = 1});
  std::vector<RequestNumber> candidates;
  queue.candidates(candidates);
  REQUIRE(candidates.empty());
  REQUIRE_FALSE(queue.peek());
  REQUIRE_FALSE(queue.pick());
  REQUIRE(queue.size() == 1);
  queue.push(2, {.tenant = TenantId{2}, .arrival = 2, .prompt_tokens = 1});
  REQUIRE(queue.pick() == 2u);
  may_admit = true;
  REQUIRE(queue.pick() == 1u);
}
