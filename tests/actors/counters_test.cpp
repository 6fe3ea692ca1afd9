#include "actors/counters.h"

#include <catch2/catch.hpp>

namespace troupe::actors {
namespace {

TimePoint at(int seconds) { return TimePoint{} + std::chrono::seconds(seconds); }

StatusSnapshot filled(const Counters& counters, TimePoint now) {
  StatusSnapshot snapshot;
  counters.fill(snapshot, now);
  return snapshot;
}

StreamCounts counts_of(std::uint64_t queued, TimePoint since) {
  StreamCounts counts;
  counts.in_state[static_cast<std::size_t>(RequestState::queued)] = queued;
  counts.work_since = since;
  return counts;
}

TEST_CASE("counters: time goes by without progress while there is work and a model, and no step ends") {
  Counters counters(at(0));
  const auto still = [&](std::uint64_t queued, int since, int now) {
    return counters.without_progress(counts_of(queued, at(since)), at(now));
  };
  CHECK(still(1, 10, 50) == std::chrono::seconds(0));  // loading
  counters.model_loaded(at(60));
  CHECK(still(0, 10, 100) == std::chrono::seconds(0));
  CHECK(still(1, 10, 61) == std::chrono::seconds(1));    // not since it came
  CHECK(still(1, 100, 101) == std::chrono::seconds(1));  // not since the model is there
  counters.step_began(at(102));
  counters.step_ended(0.5, at(103));
  CHECK(still(1, 100, 108) == std::chrono::seconds(5));
  CHECK(still(0, 100, 108) == std::chrono::seconds(0));
  CHECK(still(1, 200, 108) == std::chrono::seconds(0));  // work that came after this moment
  CHECK(filled(counters, at(108)).steps == 1);
  CHECK(filled(counters, at(108)).step_seconds == Approx(0.5));
  CHECK(filled(counters, at(108)).uptime_seconds == Approx(108));
}

TEST_CASE("counters: what a keeper counted is kept when another one begins from zero") {
  Counters counters(at(0));
  counters.cache({.total = 8, .free = 6, .published = 5, .evictions = 2});
  counters.restarted();
  counters.keeper_restarted();
  counters.cache({.total = 8, .free = 8, .published = 1, .evictions = 1});
  const StatusSnapshot snapshot = filled(counters, at(1));
  CHECK(snapshot.prefix_blocks_computed == 6);
  CHECK(snapshot.evictions == 3);
  CHECK(snapshot.blocks_free == 8);
  CHECK(snapshot.worker_restarts == 1);
}

}  // namespace
}  // namespace troupe::actors
