#include "scheduler/shares/expected_retries.h"

#include <catch2/catch.hpp>

using troupe::scheduler::ExpectedRetries;

TEST_CASE("a request that was told to come back is known once, also if it comes early") {
  ExpectedRetries retries;
  retries.add(7, 10, 0, 100);
  retries.add(8, 10, 50, 100);
  REQUIRE(retries.places(100) == 1);
  REQUIRE(retries.tokens(100) == 50);
  REQUIRE_FALSE(retries.take(9, 110));
  REQUIRE(retries.take(7, 101));
  REQUIRE_FALSE(retries.take(7, 110));
  REQUIRE(retries.places(110) == 0);
  REQUIRE(retries.take(8, 115));
  REQUIRE(retries.empty(115));
}

TEST_CASE("two requests of one content are expected twice") {
  ExpectedRetries retries;
  retries.add(7, 1, 0, 0);
  retries.add(7, 5, 0, 0);
  REQUIRE(retries.places(0) == 2);
  REQUIRE(retries.take(7, 2));
  REQUIRE(retries.take(7, 2));
  REQUIRE_FALSE(retries.take(7, 2));
}

TEST_CASE("what does not come back is forgotten, half of its wait and some seconds after it") {
  ExpectedRetries retries;
  retries.add(7, 10, 0, 0);
  REQUIRE(retries.places(16.9) == 1);
  REQUIRE_FALSE(retries.take(7, 17.1));
  REQUIRE(retries.places(18) == 0);
  REQUIRE(retries.empty(18));
}

TEST_CASE("no more than so many retries are expected") {
  ExpectedRetries retries;
  for (std::uint64_t content = 1; content <= 3 * ExpectedRetries::kMax; ++content) retries.add(content, 10, 1, 0);
  REQUIRE(retries.tokens(0) == ExpectedRetries::kMax);
  REQUIRE(retries.take(ExpectedRetries::kMax, 11));
  REQUIRE_FALSE(retries.take(ExpectedRetries::kMax + 1, 11));
}
