#include "scheduler/shares/token_bucket.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using troupe::scheduler::TokenBucket;

TEST_CASE("a bucket is full at first, and refills up to its capacity") {
  TokenBucket bucket(60, 2);
  REQUIRE(bucket.is_full(100));
  bucket.take(50, 100);
  REQUIRE(bucket.level(100) == 10);
  REQUIRE(bucket.level(105) == 20);
  REQUIRE(bucket.level(99) == 10);  // a clock that goes back
  REQUIRE(bucket.level(1000) == 60);
  bucket.give_back(50, 100);
  REQUIRE(bucket.level(100) == 60);
}

TEST_CASE("a debt is paid back first") {
  TokenBucket bucket(60, 1);
  bucket.take(90, 0);
  REQUIRE(bucket.level(0) == -30);
  REQUIRE(bucket.wait_for(0, 0) == 30);
  REQUIRE(bucket.wait_for(10, 10) == 30);
  REQUIRE(bucket.wait_for(0, 30) == 0);
}

TEST_CASE("a bucket that is made smaller keeps what fits, and one that is made larger what it had") {
  TokenBucket bucket(60, 1);
  bucket.resize(20, 1);
  REQUIRE(bucket.level(0) == 20);
  bucket.resize(600, 10);
  REQUIRE(bucket.level(0) == 20);
  REQUIRE(bucket.level(1) == 30);
}

TEST_CASE("after the wait that was said the amount is there, and a millisecond before it is not") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const double capacity = 1 + static_cast<double>(random() % 100'000);
    TokenBucket bucket(capacity, capacity / 60);
    double now = 1e5 + static_cast<double>(random() % 1'000'000) / 977;
    bucket.take(static_cast<double>(random() % static_cast<std::uint64_t>(capacity) + 1), now);
    now += static_cast<double>(random() % 1000) / 131;
    const double amount = 1 + static_cast<double>(random() % static_cast<std::uint64_t>(capacity));
    const double wait = bucket.wait_for(amount, now);
    INFO("round " << round << ", " << amount << " of " << capacity << " in " << wait << " s");
    REQUIRE(bucket.wait_for(amount, now + std::ceil(wait * 1000) / 1000) == 0);
    if (wait > 0.001) REQUIRE(bucket.wait_for(amount, now + wait - 0.001) > 0);
  }
}

TEST_CASE("a bucket that is not refilled never has more") {
  TokenBucket bucket(0, 0);
  REQUIRE(bucket.wait_for(1, 5) == std::numeric_limits<double>::infinity());
}

TEST_CASE("callers that are refused together and come back when they are told all get their amounts") {
  TokenBucket bucket(600, 10);
  bucket.take(600, 0);
  struct Waiting {
    double at, amount;
  };
  std::vector<Waiting> waiting;
  for (const double amount : {100, 20, 50, 30, 200}) {
    waiting.push_back({bucket.reserve(amount, 0), amount});
  }
  REQUIRE(waiting.back().at == 40);
  for (const Waiting& each : waiting) {
    REQUIRE(bucket.wait_for(each.amount, each.at - 0.001) > 0);
    REQUIRE(bucket.wait_for(each.amount, each.at) == 0);
    bucket.take(each.amount, each.at);
  }
}

TEST_CASE("amounts that were reserved and are not taken delay others by a minute at most") {
  TokenBucket bucket(60, 1);
  bucket.take(60, 0);
  for (int i = 0; i < 1000; ++i) (void)bucket.reserve(30, 0);
  REQUIRE(bucket.reserve(30, 0) == 30 + TokenBucket::kMaxDelay);
  REQUIRE(bucket.wait_for(30, 30) == 0);  // what is there can be taken, whatever is reserved
  bucket.take(60, 200);
  REQUIRE(bucket.reserve(30, 200) == 30);
}
