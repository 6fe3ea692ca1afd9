#include "actors/counters.h"

#include <catch2/catch.hpp>

namespace troupe::actors {
namespace {

TimePoint at(int seconds) { return TimePoint{} + std::chrono::seconds(seconds); }

StatusSnapshot filled(const Counters& counters, bool busy, TimePoint now) {
  StatusSnapshot snapshot;
  counters.fill(snapshot, busy, now);
  return snapshot;
}

TEST_CASE("counters: the age of the last step counts only while there is work") {
  Counters counters(at(0));
  CHECK(filled(counters, false, at(100)).last_step_age_seconds == 0);
  counters.work_arrived(at(100));
  CHECK(filled(counters, true, at(101)).last_step_age_seconds == Approx(1));  // not since the start
  counters.step_began(at(102));
  counters.step_ended(0.5, at(103));
  CHECK(filled(counters, true, at(108)).last_step_age_seconds == Approx(5));
  CHECK(filled(counters, false, at(108)).last_step_age_seconds == 0);
  CHECK(filled(counters, false, at(108)).steps == 1);
  CHECK(filled(counters, false, at(108)).step_seconds == Approx(0.5));
  CHECK(filled(counters, false, at(108)).uptime_seconds == Approx(108));
}

TEST_CASE("counters: what a keeper counted is kept when another one begins from zero") {
  Counters counters(at(0));
  counters.cache({.total = 8, .free = 6, .published = 5, .evictions = 2});
  counters.restarted();
  counters.keeper_restarted();
  counters.cache({.total = 8, .free = 8, .published = 1, .evictions = 1});
  const StatusSnapshot snapshot = filled(counters, false, at(1));
  CHECK(snapshot.prefix_blocks_computed == 6);
  CHECK(snapshot.evictions == 3);
  CHECK(snapshot.blocks_free == 8);
  CHECK(snapshot.worker_restarts == 1);
}

}  // namespace
}  // namespace troupe::actors
