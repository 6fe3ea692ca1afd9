#include "scheduler/promises.h"

#include <catch2/catch.hpp>

using troupe::scheduler::Promises;

TEST_CASE("a request that was told to come back is known once, also if it comes early") {
  Promises promises;
  promises.add(7, 10, 0, 100);
  promises.add(8, 10, 50, 100);
  REQUIRE(promises.places(100) == 1);
  REQUIRE(promises.tokens(100) == 50);
  REQUIRE_FALSE(promises.take(9, 110));
  REQUIRE(promises.take(7, 101));
  REQUIRE_FALSE(promises.take(7, 110));
  REQUIRE(promises.places(110) == 0);
  REQUIRE(promises.take(8, 115));
  REQUIRE(promises.empty(115));
}

TEST_CASE("two requests of one content are two promises") {
  Promises promises;
  promises.add(7, 1, 0, 0);
  promises.add(7, 5, 0, 0);
  REQUIRE(promises.places(0) == 2);
  REQUIRE(promises.take(7, 2));
  REQUIRE(promises.take(7, 2));
  REQUIRE_FALSE(promises.take(7, 2));
}

TEST_CASE("what does not come back is forgotten, half of its wait and some seconds after it") {
  Promises promises;
  promises.add(7, 10, 0, 0);
  REQUIRE(promises.places(16.9) == 1);
  REQUIRE_FALSE(promises.take(7, 17.1));
  REQUIRE(promises.places(18) == 0);
  REQUIRE(promises.empty(18));
}

TEST_CASE("no more than so many promises are kept") {
  Promises promises;
  for (std::uint64_t content = 1; content <= 3 * Promises::kMax; ++content) promises.add(content, 10, 1, 0);
  REQUIRE(promises.tokens(0) == Promises::kMax);
  REQUIRE(promises.take(Promises::kMax, 11));
  REQUIRE_FALSE(promises.take(Promises::kMax + 1, 11));
}
