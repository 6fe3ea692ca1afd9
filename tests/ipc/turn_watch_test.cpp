#include "ipc/turn_watch.h"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
using troupe::ipc::TurnWatch;
using Verdict = TurnWatch::Verdict;

namespace {
const TurnWatch::TimePoint kStart{1000h};
}

TEST_CASE("a turn that comes within a second is not late") {
  TurnWatch watch(60s);
  watch.asked(kStart);
  CHECK(watch.look(kStart + 999ms) == Verdict::fine);
  CHECK(watch.came(kStart + 999ms) == Verdict::fine);
}

TEST_CASE("a turn that does not come is late once, and stuck after twice the patience") {
  TurnWatch watch(60s);
  watch.asked(kStart);
  CHECK(watch.next_look() == kStart + 1s);
  CHECK(watch.look(kStart + 1s) == Verdict::late);
  CHECK(watch.next_look() == kStart + 60s);
  CHECK(watch.look(kStart + 59s) == Verdict::fine);
  CHECK(watch.look(kStart + 60s) == Verdict::fine);
  CHECK(watch.next_look() == kStart + 120s);
  CHECK(watch.look(kStart + 119s) == Verdict::fine);
  CHECK(watch.look(kStart + 120s) == Verdict::stuck);
}

TEST_CASE("a patience below a second is a second") {
  TurnWatch watch(1ms);
  watch.asked(kStart);
  CHECK(watch.next_look() == kStart + 1s);
  CHECK(watch.look(kStart + 999ms) == Verdict::fine);
  CHECK(watch.look(kStart + 1s) == Verdict::late);
  CHECK(watch.look(kStart + 1999ms) == Verdict::fine);
  CHECK(watch.look(kStart + 2s) == Verdict::stuck);
}

TEST_CASE("two turns in a row that come, but as late as the patience, are too many; one in time between is not") {
  TurnWatch watch(60s);
  watch.asked(kStart);
  CHECK(watch.came(kStart + 70s) == Verdict::late);
  watch.asked(kStart + 71s);
  SECTION("in a row") { CHECK(watch.came(kStart + 141s) == Verdict::stuck); }
  SECTION("the second does not come") {
    CHECK(watch.look(kStart + 72s) == Verdict::late);
    CHECK(watch.look(kStart + 131s) == Verdict::stuck);
  }
  SECTION("one in time between") {
    CHECK(watch.came(kStart + 72s) == Verdict::late);  // by a second, which does not count
    watch.asked(kStart + 73s);
    CHECK(watch.came(kStart + 143s) == Verdict::late);
  }
}

TEST_CASE("a pause of the whole process, however long, counts once") {
  TurnWatch watch(60s);
  watch.asked(kStart);
  CHECK(watch.look(kStart + 10h) == Verdict::late);
  CHECK(watch.next_look() == kStart + 10h + 60s);
  CHECK(watch.came(kStart + 10h + 1ms) == Verdict::late);
  watch.asked(kStart + 10h + 1s);
  CHECK(watch.came(kStart + 10h + 1s) == Verdict::fine);
  watch.asked(kStart + 10h + 2s);
  CHECK(watch.look(kStart + 20h) == Verdict::late);
}
