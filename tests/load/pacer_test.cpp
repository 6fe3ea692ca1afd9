#include "bench/load/drivers/pacer.h"

#include <catch2/catch.hpp>

using namespace troupe::load;

namespace {

PlanSpec spec_of(std::uint32_t clients, std::optional<double> rate, std::optional<std::uint64_t> num_requests) {
  PlanSpec spec;
  spec.pace.clients = clients;
  spec.pace.rate = rate;
  spec.pace.burstiness = 0;
  spec.pace.num_requests = num_requests;
  spec.vocabulary.size = 16;
  return spec;
}

Plan made(PlanSpec spec) {
  auto plan = Plan::make(std::move(spec));
  if (!plan) FAIL(plan.error().message);
  return std::move(*plan);
}

}  // namespace

TEST_CASE("each client of a closed loop has one request at a time, and the next is due when that has ended") {
  const Plan plan = made(spec_of(2, std::nullopt, 4));
  Pacer pacer(plan);
  REQUIRE(pacer.next(0)->client == 0);
  REQUIRE(pacer.next(0)->client == 1);
  REQUIRE_FALSE(pacer.next(100));
  REQUIRE_FALSE(pacer.next_at());
  pacer.ended(1, 2.5);
  REQUIRE(pacer.next_at() == 2.5);
  const auto third = pacer.next(2.75);
  REQUIRE(third);
  CHECK(third->client == 1);
  CHECK(third->index == 2);
  CHECK(third->intended_s == 2.5);  // the quarter of a second that the driver slept counts
  pacer.ended(0, 3);
  REQUIRE(pacer.next(3));
  CHECK(pacer.exhausted());
  CHECK(pacer.in_flight() == 2);
  pacer.ended(0, 4);
  pacer.ended(1, 4);
  CHECK_FALSE(pacer.next(5));
  CHECK(pacer.in_flight() == 0);
}

TEST_CASE("a client thinks before its next request") {
  PlanSpec spec = spec_of(1, std::nullopt, 2);
  spec.pace.think_s = 1.5;
  const Plan plan = made(spec);
  Pacer pacer(plan);
  REQUIRE(pacer.next(0));
  pacer.ended(0, 2);
  CHECK_FALSE(pacer.next(3));
  CHECK(pacer.next(3.5)->intended_s == 3.5);
}

TEST_CASE("an open loop sends by its arrivals, whether anything has ended or not") {
  const Plan plan = made(spec_of(0, 10, 3));
  Pacer pacer(plan);
  CHECK(pacer.next(0)->intended_s == 0);
  CHECK(pacer.next_at() == Approx(0.1));
  CHECK_FALSE(pacer.next(0.05));
  CHECK(pacer.next(5)->intended_s == Approx(0.1));
  CHECK(pacer.next(5)->intended_s == Approx(0.2));
  CHECK(pacer.exhausted());
  CHECK(pacer.in_flight() == 3);
}

TEST_CASE("in a bounded open loop a request waits for a slot and keeps its intended time") {
  const Plan plan = made(spec_of(1, 10, 2));
  Pacer pacer(plan);
  REQUIRE(pacer.next(0));
  CHECK_FALSE(pacer.next(1));
  pacer.ended(0, 2);
  CHECK(pacer.next(2)->intended_s == Approx(0.1));
}

TEST_CASE("a closed loop ends by time when no client is free before") {
  PlanSpec spec = spec_of(2, std::nullopt, std::nullopt);
  spec.pace.duration_s = 10;
  spec.pace.ramp_from = 1;
  spec.pace.ramp_up_s = 40;  // the second client begins at once as well: it is one more than the ramp began with
  const Plan plan = made(spec);
  Pacer pacer(plan);
  REQUIRE(pacer.next(0));
  REQUIRE(pacer.next(0));
  pacer.ended(0, 9);
  CHECK_FALSE(pacer.exhausted());
  REQUIRE(pacer.next(9));
  pacer.ended(0, 10.5);
  CHECK_FALSE(pacer.next(20));
  CHECK_FALSE(pacer.exhausted());  // client 1 could still end before the tenth second
  pacer.ended(1, 11);
  CHECK(pacer.exhausted());
}

TEST_CASE("a client that begins after the end of the run does not end it for the others") {
  PlanSpec spec = spec_of(2, std::nullopt, std::nullopt);
  spec.pace.duration_s = 10;
  spec.pace.ramp_up_s = 40;  // client 1 begins at 20
  const Plan plan = made(spec);
  Pacer pacer(plan);
  REQUIRE(pacer.next(0));
  CHECK_FALSE(pacer.exhausted());
  pacer.ended(0, 3);
  CHECK(pacer.next(3)->client == 0);
  pacer.ended(0, 11);
  CHECK(pacer.exhausted());
}

TEST_CASE("a stopped pacer returns no request") {
  const Plan plan = made(spec_of(4, std::nullopt, 100));
  Pacer pacer(plan);
  REQUIRE(pacer.next(0));
  pacer.stop();
  CHECK_FALSE(pacer.next(1));
  CHECK(pacer.exhausted());
}

TEST_CASE("a load that starts later sends nothing before, in both kinds of loop, and ends with the run") {
  PlanSpec closed = spec_of(2, std::nullopt, std::nullopt);
  closed.pace.start_s = 3;
  closed.pace.duration_s = 5;
  const Plan plan = made(closed);
  Pacer pacer(plan);
  CHECK_FALSE(pacer.next(2.9));
  CHECK(pacer.next_at() == 3);
  REQUIRE(pacer.next(3)->intended_s == 3);
  REQUIRE(pacer.next(3));
  pacer.ended(0, 5.5);
  pacer.ended(1, 5.5);
  CHECK(pacer.exhausted());

  PlanSpec open = spec_of(0, 2, std::nullopt);
  open.pace.start_s = 3;
  open.pace.duration_s = 5;
  const Plan arrivals = made(open);
  REQUIRE(arrivals.size() == 5);
  CHECK(arrivals.arrival_s(0) == 3);
  CHECK(arrivals.arrival_s(4) == 5);

  open.pace.start_s = 5;
  const auto late = Plan::make(open);
  REQUIRE_FALSE(late);
  CHECK(late.error().message.find("begins at 5 s, outside of the run's 5 s") != std::string::npos);
}
