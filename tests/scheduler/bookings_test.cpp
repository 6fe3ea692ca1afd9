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
    bookings.add(i, request(i), 1, 1, 0);
    REQUIRE(bookings.take(i, 0));
  }
  return bookings;
}

std::vector<ForecastRequest> booked(Bookings& bookings, double now) { return bookings.booked({}, {}, now); }

}  // namespace

TEST_CASE("bookings: a booking counts until its request comes back or stays away for too long") {
  Bookings bookings = trusting();
  bookings.add(7, request(1), 10, 3, 100);
  bookings.add(8, request(2), 20, 3, 100);
  REQUIRE(booked(bookings, 100).size() == 2);
  CHECK(booked(bookings, 100)[0].promised == Approx(10 + 3 / PromiseMargin::kFirst));
  CHECK(booked(bookings, 104)[1].promised == Approx(16 + 3 / PromiseMargin::kFirst));
  CHECK_FALSE(bookings.take(9, 104));
  CHECK(bookings.take(7, 104));
  CHECK_FALSE(bookings.take(7, 104));
  CHECK(booked(bookings, 132).size() == 1);  // 20 s, half of it, and 2 s
  CHECK(booked(bookings, 132.1).empty());
}

TEST_CASE("bookings: nothing is kept free while few requests come back, and again once they do") {
  Bookings bookings = trusting();
  double now = 0;
  for (std::uint64_t i = 0; i < 40; ++i, now += 4) bookings.add(i, request(i), 1, 1, now);
  CHECK(bookings.size() == 1);
  CHECK(booked(bookings, now - 4).empty());
  for (std::uint64_t i = 0; i < 40; ++i, now += 4) {
    bookings.add(i, request(i), 1, 1, now);
    CHECK(bookings.take(i, now + 1));
  }
  bookings.add(1, request(1), 1, 1, now);
  CHECK(booked(bookings, now).size() == 1);
}

TEST_CASE("bookings: there is a most of them") {
  Bookings bookings;
  for (std::uint64_t i = 0; i < Bookings::kMax + 10; ++i) bookings.add(i, request(i), 10, 1, 0);
  CHECK(bookings.size() == Bookings::kMax);
  CHECK(bookings.take(0, 0));
  CHECK_FALSE(bookings.take(Bookings::kMax + 1, 0));
}

TEST_CASE("bookings: another tenant's are neither crowded out nor less trusted") {
  Bookings bookings = trusting();
  constexpr TenantId kOther{2};
  for (std::uint64_t i = 0; i < 2 * Bookings::kMax; ++i) bookings.add(1000 + i, request(i, kOther), 10, 1, 0);
  REQUIRE(bookings.size() == Bookings::kMax);
  CHECK(booked(bookings, 0).empty());  // none of its requests has come back yet
  bookings.add(1, request(1), 100, 1, 0);
  CHECK(bookings.size() == Bookings::kMax);
  REQUIRE(booked(bookings, 50).size() == 1);  // those of the other have lapsed
  CHECK(booked(bookings, 50)[0].demand.tenant == TenantId{1});
  CHECK(bookings.take(1, 50));
}

// Two places, a step of one row takes 10 ms: twice as many requests arrive as can be served, and each that is refused
// comes back when it was told to.
TEST_CASE("bookings: at twice the capacity requests that come back when they were told to are admitted") {
  Experience learned;
  learned.bookings = trusting();
  for (int i = 0; i < 40; ++i)
    for (const std::uint32_t tokens : {1, 2, 32, 128, 512}) {
      StepLoad load;
      for (std::uint32_t row = 0; row < tokens; ++row) load.add_row(10, 1, false);
      learned.costs.learn(load, 0.01 * tokens);
    }
  const ForecastServer server{.costs = &learned.costs, .max_step_tokens = 512, .max_sequences = 2};
  struct Asked {
    double at;
    std::uint64_t content;
    bool is_retry;
  };
  std::vector<Asked> coming;
  // A request takes 1.5 s alone: 1 s of prefill, 0.5 s of answer; all of it is computed one after the other here.
  for (std::uint64_t i = 0; i < 120; ++i) coming.push_back({0.75 * static_cast<double>(i), i, false});
  std::vector<std::pair<double, ForecastRequest>> running;  // with the time at which each ends
  double free_at = 0;
  int retries = 0, admitted_retries = 0, admitted = 0, late = 0;
  while (!coming.empty()) {
    const auto next = std::ranges::min_element(coming, {}, &Asked::at);
    const Asked now = *next;
    coming.erase(next);
    std::erase_if(running, [&](const auto& entry) { return entry.first <= now.at; });
    std::vector<ForecastRequest> others;
    for (const auto& [ends, other] : running) {
      others.push_back(other);
      others.back().promised = ends + 3 - now.at;
    }
    ForecastRequest one = request(now.content);
    constexpr double kDeadline = 6;
    one.demand.due_seconds = now.at + kDeadline - 1.5;
    one.promised = kDeadline;
    std::vector<ForecastRequest> booked;
    if (!learned.bookings.take(now.content, now.at))
      booked = learned.bookings.booked(learned.first_margins, learned.last_margins, now.at);
    const double wait = decide_promise(server, others, booked, one).wait;
    retries += now.is_retry ? 1 : 0;
    if (wait == 0) {
      free_at = std::max(free_at, now.at) + 1.5;
      running.emplace_back(free_at, one);
      ++admitted;
      admitted_retries += now.is_retry ? 1 : 0;
      late += free_at > now.at + 1.5 * kDeadline ? 1 : 0;
      continue;
    }
    if (now.is_retry) continue;
    learned.bookings.add(now.content, one, wait, kDeadline, now.at);
    coming.push_back({now.at + wait, now.content, true});
  }
  INFO(admitted << " admitted, " << admitted_retries << " of " << retries << " retries, " << late << " late");
  CHECK(retries > 30);
  CHECK(admitted_retries >= 0.9 * retries);
  CHECK(late == 0);
}
