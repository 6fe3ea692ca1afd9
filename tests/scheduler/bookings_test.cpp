#include "scheduler/bookings.h"

#include <catch2/catch.hpp>
#include <vector>

#include "scheduler/experience.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

ForecastRequest request(std::uint64_t arrival, TenantId tenant = TenantId{1}) {
  ForecastRequest request{
      .demand = {.tenant = tenant, .arrival = arrival, .prompt_tokens = 100}, .known = 100, .answer = 50};
  request.promised_last = true;
  return request;
}

// Clients are known to come back.
Bookings trusting() {
  Bookings bookings;
  for (std::uint64_t i = 0; i < 20; ++i) {
    bookings.add(i, request(i), 1, 0, 1, 0);
    REQUIRE(bookings.take(i, 0));
  }
  return bookings;
}

std::vector<ForecastRequest> booked(Bookings& bookings, double now) { return bookings.booked({}, {}, now); }

}  // namespace

TEST_CASE("bookings: a booking counts until its request comes back or stays away for too long") {
  Bookings bookings = trusting();
  bookings.add(7, request(1), 10, 0, 3, 100);
  bookings.add(8, request(2), 20, 0, 3, 100);
  REQUIRE(booked(bookings, 100).size() == 2);
  CHECK(booked(bookings, 100)[0].promised == Approx(12.5 + 3 / PromiseMargin::kFirst));
  CHECK(booked(bookings, 104)[1].promised == Approx(21 + 3 / PromiseMargin::kFirst));
  CHECK_FALSE(bookings.take(9, 104));
  CHECK(bookings.take(7, 104));
  CHECK_FALSE(bookings.take(7, 104));
  CHECK(booked(bookings, 132).size() == 1);  // 20 s, half of it, and 2 s
  CHECK(booked(bookings, 132.1).empty());
}

TEST_CASE("bookings: nothing is kept free while few requests come back, and again once they do") {
  Bookings bookings = trusting();
  double now = 0;
  for (std::uint64_t i = 0; i < 40; ++i, now += 4) bookings.add(i, request(i), 1, 0, 1, now);
  CHECK(bookings.size() == 1);
  CHECK(booked(bookings, now - 4).empty());
  for (std::uint64_t i = 0; i < 40; ++i, now += 4) {
    bookings.add(i, request(i), 1, 0, 1, now);
    CHECK(bookings.take(i, now + 1));
  }
  bookings.add(1, request(1), 1, 0, 1, now);
  CHECK(booked(bookings, now).size() == 1);
}

TEST_CASE("bookings: there is a most of them") {
  Bookings bookings;
  for (std::uint64_t i = 0; i < Bookings::kMax + 10; ++i) bookings.add(i, request(i), 10, 0, 1, 0);
  CHECK(bookings.size() == Bookings::kMax);
  CHECK(bookings.take(0, 0));
  CHECK_FALSE(bookings.take(Bookings::kMax + 1, 0));
}

TEST_CASE("bookings: another tenant's are neither crowded out nor less trusted") {
  Bookings bookings = trusting();
  constexpr TenantId kOther{2};
  bookings.add(999, request(1, kOther), 1, 0, 1, 0);
  CHECK(booked(bookings, 10).empty());  // and has not come back
  for (std::uint64_t i = 0; i < 2 * Bookings::kMax; ++i) bookings.add(1000 + i, request(i, kOther), 10, 0, 1, 10);
  REQUIRE(bookings.size() == Bookings::kMax);
  bookings.add(1, request(1), 100, 0, 1, 10);
  CHECK(bookings.size() == Bookings::kMax);
  REQUIRE(booked(bookings, 60).size() == 1);  // those of the other have lapsed
  CHECK(booked(bookings, 60)[0].demand.tenant == TenantId{1});
  CHECK(bookings.take(1, 60));
}

TEST_CASE("bookings: a tenant's requests are told to come back one after another, as far as they come") {
  Bookings bookings = trusting();
  const auto add = [&](std::uint64_t content, double now, TenantId tenant = TenantId{1}) {
    return bookings.add(content, request(content, tenant), 1, 0.5, 3, now);
  };
  CHECK(add(100, 50) == 1);
  CHECK(add(101, 50) == 1.5);
  CHECK(add(102, 50.25) == 1.75);
  CHECK(add(103, 50.25, TenantId{2}) == 1);
  CHECK(add(104, 60) == 1);
  Bookings distrusting;
  for (std::uint64_t i = 0; i < 40; ++i) distrusting.add(i, request(i), 1, 0, 1, 10.0 * static_cast<double>(i));
  for (const std::uint64_t content : {100, 101}) CHECK(distrusting.add(content, request(1), 1, 0.5, 3, 1000) == 1);
}
