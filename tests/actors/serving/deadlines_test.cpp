#include "actors/serving/deadlines.h"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::actors;
using namespace std::chrono_literals;

namespace {

TimePoint at(int seconds) { return TimePoint{} + std::chrono::seconds(seconds); }

}  // namespace

TEST_CASE("deadlines: the earliest is next, and due are those at or before the time, of one unit, in order") {
  Deadlines deadlines;
  CHECK_FALSE(deadlines.next(0));
  CHECK(deadlines.due(0, at(100)).empty());
  CHECK(deadlines.add(0, 1, at(10), 20s) == at(30));
  CHECK(deadlines.add(0, 2, at(15), 5s) == at(20));
  CHECK(deadlines.add(0, 3, at(20), 10s) == at(30));
  CHECK(deadlines.add(1, 4, at(0), 1s) == at(1));
  CHECK(deadlines.next(0) == at(20));
  CHECK(deadlines.next(1) == at(1));
  CHECK(deadlines.due(0, at(19)).empty());
  CHECK(deadlines.due(0, at(20)) == std::vector<RequestId>{2});
  CHECK(deadlines.due(0, at(30)) == std::vector<RequestId>{2, 1, 3});
  deadlines.remove(0, 2, at(20));
  deadlines.remove(0, 1, at(30));
  CHECK(deadlines.next(0) == at(30));
  deadlines.remove(0, 3, at(30));
  CHECK_FALSE(deadlines.next(0));
}

TEST_CASE("deadlines: a time too long for the clock is cut to a hundred years") {
  Deadlines deadlines;
  const TimePoint far = deadlines.add(0, 1, at(10), std::chrono::milliseconds::max());
  CHECK(far == at(10) + std::chrono::hours(24 * 365 * 100));
}
