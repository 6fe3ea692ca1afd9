#include "scheduler/shares/request_line.h"

#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <random>
#include <vector>

using namespace troupe::scheduler;

namespace {

constexpr RequestLoad kRoom{.live = 3, .waiting = 2, .prompt_bytes = 100, .texts = 1, .vector_bytes = 50};
constexpr RequestLoad kOne{.live = 1, .waiting = 1, .prompt_bytes = 10};

}  // namespace

TEST_CASE("a line has room up to each limit, and what is not asked for is not looked at") {
  RequestLine line;
  RequestLine::Held first = line.take(kOne);
  CHECK(line.has_room(kOne, kRoom));
  CHECK_FALSE(line.has_room({.live = 1, .waiting = 1, .prompt_bytes = 91}, kRoom));
  CHECK(line.has_room({.live = 1, .vector_bytes = 51}, kRoom));  // nothing is taken of that
  RequestLine::Held second = line.take({.live = 1, .waiting = 1, .texts = 1});
  CHECK_FALSE(line.has_room(kOne, kRoom));  // two wait
  CHECK(line.has_room({.live = 1, .vector_bytes = 50}, kRoom));
  CHECK_FALSE(line.has_room({.live = 1, .texts = 1}, kRoom));
  second.encoded();
  CHECK(line.has_room({.live = 1, .texts = 1}, kRoom));
  first.begun();
  CHECK(line.has_room(kOne, kRoom));
  RequestLine::Held third = line.take(kOne);
  third.begun();
  second.begun();
  CHECK_FALSE(line.has_room(kOne, kRoom));  // three live
  first = {};
  CHECK(line.has_room(kOne, kRoom));
}

TEST_CASE("a request beyond every limit has room alone, for the limit to refuse it") {
  RequestLine line;
  const RequestLoad huge{.live = 64, .waiting = 64, .prompt_bytes = 1000};
  CHECK(line.has_room(huge, kRoom));
  const RequestLine::Held one = line.take(kOne);
  CHECK_FALSE(line.has_room(huge, kRoom));
}

TEST_CASE("the first in the line is woken by what is given back, and the next when the first has gone") {
  RequestLine line;
  RequestLine::Held held = line.take(kOne);
  std::vector<int> woken(3);
  std::vector<std::unique_ptr<RequestLine::Place>> places;
  for (int& count : woken) places.push_back(std::make_unique<RequestLine::Place>(line, false, [&count] { ++count; }));
  CHECK(places[0]->is_first());
  held.begun();
  CHECK(woken == std::vector{1, 0, 0});
  held.begun();  // nothing is left to give back of that
  CHECK(woken == std::vector{1, 0, 0});
  places[1].reset();  // its client has gone
  CHECK(woken == std::vector{1, 0, 0});
  places[0].reset();
  CHECK(woken == std::vector{1, 0, 1});
  CHECK(places[2]->is_first());
  held = {};
  CHECK(woken == std::vector{1, 0, 2});
  places.clear();
  CHECK(line.is_empty(false));
}

TEST_CASE("owners do not wait behind guests of their tenant") {
  RequestLine line;
  RequestLine::Held held = line.take(kOne);
  int guest_woken = 0, owner_woken = 0;
  const RequestLine::Place guest(line, false, [&] { ++guest_woken; });
  CHECK(line.is_empty(true));
  const RequestLine::Place owner(line, true, [&] { ++owner_woken; });
  CHECK((guest.is_first() && owner.is_first()));
  held = {};
  CHECK((guest_woken == 1 && owner_woken == 1));
}

TEST_CASE("requests of any size come in the order of the line, within the limits, and everything is given back") {
  std::mt19937_64 random(11);
  RequestLine line;
  const RequestLoad room{.live = 8, .waiting = 5, .prompt_bytes = 1000, .texts = 2, .vector_bytes = 300};
  struct Waiting {
    int number;
    RequestLoad load;
    std::unique_ptr<RequestLine::Place> place;
  };
  std::deque<Waiting> waiting;
  std::vector<RequestLine::Held> held;
  int arrived = 0, let_in = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 && waiting.size() < 50) {
      const RequestLoad load{.live = 1 + random() % 3,
                             .waiting = random() % 3,
                             .prompt_bytes = random() % 1200,
                             .texts = random() % 2,
                             .vector_bytes = random() % 400};
      waiting.push_back({arrived++, load, std::make_unique<RequestLine::Place>(line, false, [] {})});
    }
    while (!waiting.empty() && line.has_room(waiting.front().load, room)) {
      REQUIRE(waiting.front().place->is_first());
      REQUIRE(waiting.front().number == let_in++);
      held.push_back(line.take(waiting.front().load));
      waiting.pop_front();
    }
    REQUIRE((!held.empty() || waiting.empty()));  // nothing waits for nothing
    if (held.empty()) continue;
    RequestLine::Held& one = held[random() % held.size()];
    switch (random() % 3) {
      case 0:
        one.encoded();
        break;
      case 1:
        one.begun();
        break;
      default:
        std::swap(one, held.back());
        held.pop_back();
    }
  }
  REQUIRE(let_in > 1000);
  held.clear();
  waiting.clear();
  CHECK(line.has_room({.live = 1000}, room));  // as nothing is taken
}
