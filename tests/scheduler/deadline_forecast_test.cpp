// Forecasts beside what happens in the simulation of tests/scheduler/serving_sim.h, in which only steps take time.
#include "scheduler/deadline_forecast.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "tests/scheduler/serving_sim.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

// A transformer of 1 B weights on two cores, in steps that differ by 5 %.
std::function<double(const StepLoad&)> transformer(std::uint64_t seed) {
  return [random = std::mt19937_64(seed)](const StepLoad& load) mutable {
    const double noise = std::exp(std::normal_distribution<>(0, 0.05)(random));
    return noise * (std::max(0.045, load.num_tokens / 300.0) + load.num_attended * 2e-7 + 0.002 * load.num_outputs);
  };
}

SimOptions crowd_options(std::uint64_t seed) {
  SimOptions options{.groups = {{.num_blocks = 4000}},
                     .planner = {512, 16, 0.2},
                     .seed = seed,
                     .repeat_probability = 0,
                     .quick_messages = true};
  options.step_cost = transformer(seed);
  return options;
}

// Clients that ask at random times for answers of random lengths.
class Crowd {
 public:
  explicit Crowd(std::uint64_t seed) : sim(crowd_options(seed)), random_(seed) {}

  struct Totals {
    std::uint32_t asked = 0, promised = 0, kept = 0, refused = 0;
    double goodput = 0;  // tokens of answers that came in time, per second
  };

  // `rate` requests per second for `seconds`; with_deadline: the share of them that have one, all others just wait.
  Totals run(double rate, double seconds, double with_deadline = 1, std::uint32_t num_tenants = 1) {
    Totals totals;
    const double begin = sim.time(), end = begin + seconds;
    double next = begin;
    std::vector<RequestNumber> promised, open;
    while (sim.time() < end) {
      if (sim.time() >= next) {
        next += std::exponential_distribution<>(rate)(random_);
        ++totals.asked;
        const auto number = ask(with_deadline, num_tenants);
        if (!number) {
          ++totals.refused;
        } else if (sim.request(*number).deadline) {
          promised.push_back(*number);
          open.push_back(*number);
        }
        continue;
      }
      settle(open);
      if (!sim.tick()) sim.wait_until(next);
    }
    for (const RequestNumber number : promised) {
      const SimRequest& request = sim.request(number);
      if (!request.ended && *request.deadline > sim.time()) continue;  // not known yet
      ++totals.promised;
      if (request.ended_at < 0 || request.ended_at > *request.deadline) continue;
      ++totals.kept;
      totals.goodput += request.demand.max_tokens / seconds;
    }
    return totals;
  }

  // Ends streams at their deadlines, as the server does, and takes those that have ended out of `open`.
  void settle(
      std::vector<RequestNumber>& open,
      const std::function<void(RequestNumber, bool was_kept)>& ended = [](RequestNumber, bool) {}) {
    std::erase_if(open, [&](RequestNumber number) {
      const SimRequest& request = sim.request(number);
      const bool is_late = *request.deadline < (request.ended ? request.ended_at : sim.time());
      if (!request.ended && !is_late) return false;
      sim.settle(number, !is_late);
      if (is_late) sim.cancel(number);
      ended(number, !is_late);
      return true;
    });
  }

  std::vector<TokenId> prompt_of(std::uint32_t length) {
    std::vector<TokenId> tokens(length);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % 50000);
    return tokens;
  }
  double uniform(double low, double high) { return std::uniform_real_distribution<>(low, high)(random_); }

  ServingSim sim;

 private:
  std::optional<RequestNumber> ask(double with_deadline, std::uint32_t num_tenants) {
    const auto length = static_cast<std::uint32_t>(std::exp(uniform(std::log(20), std::log(600))));
    const auto answer = static_cast<std::uint32_t>(std::exp(uniform(std::log(5), std::log(200))));
    const TenantId tenant{1 + static_cast<std::uint32_t>(random_() % num_tenants)};
    if (uniform(0, 1) >= with_deadline)
      return sim.submit(prompt_of(length), answer, 0, {static_cast<cache::ScopeId>(tenant)}, tenant);
    // Alone it takes about length / 300 + answer * 0.05.
    const double alone_seconds = length / 300.0 + answer * 0.05;
    return sim.submit_by(uniform(1, 8) * (alone_seconds + 0.3), prompt_of(length), answer, tenant);
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("alone, the forecast is what happens") {
  Crowd crowd(3);
  crowd.run(1, 60, 0);  // costs are learned
  crowd.sim.drain();
  for (const std::uint32_t length : {20, 100, 700}) {
    INFO("a prompt of " << length);
    const Forecast expected =
        crowd.sim.forecast_of({.demand = {.prompt_tokens = length}, .known = length, .answer = 60});
    const RequestNumber number = crowd.sim.submit(crowd.prompt_of(length), 60);
    crowd.sim.drain();
    const SimRequest& request = crowd.sim.request(number);
    CHECK(expected.first_seconds == Approx(request.first_token_at - request.submitted_at).epsilon(0.15).margin(0.02));
    CHECK(expected.last_seconds == Approx(request.ended_at - request.submitted_at).epsilon(0.15));
  }
}

TEST_CASE("in a full batch, with a queue, of several tenants, the forecast is near what happens") {
  const std::uint32_t num_tenants = test::kSanitized ? 3 : GENERATE(1, 3);
  std::vector<double> first_ratios, last_ratios;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Crowd crowd(seed);
    for (int i = 0; i < 30; ++i) {
      const TenantId tenant{1 + static_cast<std::uint32_t>(i) % num_tenants};
      crowd.sim.submit(crowd.prompt_of(static_cast<std::uint32_t>(crowd.uniform(20, 600))),
                       static_cast<std::uint32_t>(crowd.uniform(5, 200)), 0, {static_cast<cache::ScopeId>(tenant)},
                       tenant);
    }
    while (crowd.sim.time() < 10) REQUIRE(crowd.sim.tick());
    const Forecast expected =
        crowd.sim.forecast_of({.demand = {.tenant = TenantId{1}, .prompt_tokens = 200}, .known = 200, .answer = 50});
    const RequestNumber number = crowd.sim.submit(crowd.prompt_of(200), 50, 0, {cache::ScopeId{1}}, TenantId{1});
    crowd.sim.drain();
    const SimRequest& request = crowd.sim.request(number);
    first_ratios.push_back((request.first_token_at - request.submitted_at) / expected.first_seconds);
    last_ratios.push_back((request.ended_at - request.submitted_at) / expected.last_seconds);
  }
  for (std::vector<double>* ratios : {&first_ratios, &last_ratios}) {
    std::ranges::sort(*ratios);
    INFO(num_tenants << " tenants: " << ratios->front() << ", " << (*ratios)[10] << ", " << ratios->back());
    CHECK((*ratios)[10] == Approx(1).margin(0.2));
    CHECK((*ratios)[18] < 1.6);
  }
}

TEST_CASE("below and above capacity promised deadlines are kept, and answers in time are not fewer") {
  // Requests per second that can be served: 200 that are there at once.
  Crowd saturated(1);
  for (int i = 0; i < 200; ++i) {
    saturated.sim.submit(saturated.prompt_of(static_cast<std::uint32_t>(std::exp(saturated.uniform(3, 6.4)))),
                         static_cast<std::uint32_t>(std::exp(saturated.uniform(1.6, 5.3))));
  }
  saturated.sim.drain();
  const double capacity = 200 / saturated.sim.time();
  INFO("capacity " << capacity << " requests per second");

  const auto at = [&](double load, double with_deadline, std::uint32_t num_tenants) {
    Crowd::Totals sum;
    for (std::uint64_t seed = test::kSanitized ? 3 : 1; seed <= 3; ++seed) {
      Crowd crowd(seed);
      crowd.run(capacity, 30, 0);  // costs are learned
      const Crowd::Totals totals = crowd.run(load * capacity, 400, with_deadline, num_tenants);
      sum.asked += totals.asked;
      sum.promised += totals.promised;
      sum.kept += totals.kept;
      sum.refused += totals.refused;
      sum.goodput += totals.goodput;
    }
    return sum;
  };
  const auto share = [](const Crowd::Totals& totals) { return static_cast<double>(totals.kept) / totals.promised; };
  for (const std::uint32_t num_tenants : {1, 4}) {
    INFO(num_tenants << " tenants");
    const auto below = at(0.9, 1, num_tenants), full = at(1, 1, num_tenants), above = at(2, 1, num_tenants);
    CHECK(share(below) >= 0.95);
    CHECK(share(above) >= 0.95);
    CHECK(above.refused > 0);
    CHECK(above.goodput >= 0.9 * full.goodput);
  }
  // Beside as many requests that have no deadline and wait as long as it takes.
  CHECK(share(at(0.9, 0.5, 1)) >= 0.95);
  CHECK(share(at(2, 0.5, 1)) >= 0.95);
}

TEST_CASE("a flood of short deadlines of one tenant has none of another's requests refused") {
  const std::uint64_t seed = test::kSanitized ? 1 : GENERATE(1, 2, 3);
  // Half of the time is its share: twice as long as alone, and a margin.
  const double slack = GENERATE(3.0, 5.0);
  constexpr TenantId kGuest{7}, kFlood{8};
  Crowd crowd(seed);
  crowd.run(1, 60, 0);  // costs are learned
  crowd.sim.drain();
  struct Totals {
    std::uint32_t asked = 0, promised = 0, kept = 0;
  };
  Totals guest, flood;
  std::vector<RequestNumber> open;
  double next_of_guest = crowd.sim.time() + 5, next_of_flood = crowd.sim.time();
  const double end = crowd.sim.time() + 300;
  const auto ask = [&](Totals& totals, TenantId tenant, double factor, std::uint32_t prompt, std::uint32_t answer) {
    ++totals.asked;
    const ForecastRequest request{
        .demand = {.tenant = tenant, .prompt_tokens = prompt}, .known = prompt, .answer = answer};
    const double least = crowd.sim.alone_of(request).last_seconds;
    const auto number = crowd.sim.submit_by(factor * least, crowd.prompt_of(prompt), answer, tenant);
    if (number) open.push_back(*number), ++totals.promised;
    return number;
  };
  std::optional<RequestNumber> of_guest;
  while (crowd.sim.time() < end || !open.empty()) {
    const double now = crowd.sim.time();
    crowd.settle(open, [&](RequestNumber number, bool was_kept) {
      (crowd.sim.request(number).demand.tenant == kGuest ? guest : flood).kept += was_kept ? 1 : 0;
      if (of_guest == number) of_guest.reset(), next_of_guest = now + crowd.uniform(0, 2);
    });
    if (now < end && now >= next_of_flood) {
      next_of_flood += 0.05;
      ask(flood, kFlood, crowd.uniform(1.2, 3), 40, 40);
      continue;
    }
    if (now < end && !of_guest && now >= next_of_guest) {
      of_guest = ask(guest, kGuest, slack, 60, 20);
      if (!of_guest) next_of_guest = now + crowd.uniform(0, 2);
      continue;
    }
    if (!crowd.sim.tick()) crowd.sim.wait_until(std::min(next_of_flood, next_of_guest));
  }
  INFO(guest.asked << " asked, " << guest.promised << " promised, " << guest.kept << " kept; of the flood "
                   << flood.asked << ", " << flood.promised << ", " << flood.kept);
  CHECK(guest.asked > 100);
  CHECK(guest.promised == guest.asked);
  CHECK(guest.kept >= 0.97 * guest.promised);
  // About its half of the time, and no more than it can have.
  CHECK(flood.promised > 100);
  CHECK(flood.kept >= 0.9 * flood.promised);
}

TEST_CASE("at twice the capacity retries are admitted when they were told to come back") {
  const std::uint64_t seed = test::kSanitized ? 1 : GENERATE(1, 2, 3);
  const std::uint32_t num_tenants = GENERATE(1, 2, 4);
  Crowd crowd(seed);
  crowd.run(1, 60, 0);  // costs are learned
  crowd.sim.drain();
  struct Coming {
    double at = 0;
    std::uint64_t content = 0;
    bool is_retry = false;
  };
  std::vector<Coming> coming;
  const double begin = crowd.sim.time(), end = begin + 200;
  double at = begin;
  for (std::uint64_t content = 1; at < end; ++content, at += crowd.uniform(0, 0.83))
    coming.push_back({at, content, false});
  std::uint32_t retries = 0, admitted = 0, promised = 0, kept = 0, in_time = 0;
  std::vector<RequestNumber> open;
  while (!coming.empty() || !open.empty()) {
    const double now = crowd.sim.time();
    crowd.settle(open, [&](RequestNumber, bool was_kept) {
      ++promised;
      kept += was_kept ? 1 : 0;
    });
    const auto next = std::ranges::min_element(coming, {}, &Coming::at);
    if (next != coming.end() && now >= next->at) {
      const Coming asked = *next;
      coming.erase(next);
      const auto answer = crowd.sim.submit_or_book(12, crowd.prompt_of(200), 60,
                                                   TenantId{1 + asked.content % num_tenants}, asked.content);
      retries += asked.is_retry ? 1 : 0;
      if (const auto* number = std::get_if<RequestNumber>(&answer)) {
        open.push_back(*number);
        admitted += asked.is_retry ? 1 : 0;
        in_time += now < end ? 1 : 0;
      } else if (!asked.is_retry) {
        coming.push_back({now + std::get<double>(answer) * crowd.uniform(1, 1.5), asked.content, true});
      }
      continue;
    }
    if (!crowd.sim.tick()) crowd.sim.wait_until(next == coming.end() ? now + 1 : next->at);
  }
  INFO(num_tenants << " tenants: " << admitted << " of " << retries << " retries, " << kept << " of " << promised
                   << " promises kept, " << in_time << " admitted before the end");
  CHECK(retries > 300);
  // Of several tenants each has its bookings at its share, and waits also for what the others have begun.
  CHECK(admitted >= (num_tenants == 1 ? 0.9 : num_tenants == 2 ? 0.85 : 0.75) * retries);
  CHECK(kept >= 0.95 * promised);
  CHECK(in_time > 100);  // nothing is kept idle for them
}

TEST_CASE("what would be late alone is refused, and nothing before a step is known") {
  Crowd crowd(5);
  const auto unknown = crowd.sim.submit_by(0.001, crowd.prompt_of(100), 50);
  REQUIRE(unknown);
  CHECK_FALSE(crowd.sim.request(*unknown).deadline);  // not promised
  crowd.run(1, 60, 0);
  crowd.sim.drain();
  CHECK_FALSE(crowd.sim.submit_by(2, crowd.prompt_of(100), 50));  // 50 steps of 45 ms
  CHECK(crowd.sim.submit_by(5, crowd.prompt_of(100), 50));
}

TEST_CASE("a forecast lists the promises that a further request would break, without those that are broken anyway") {
  CostModel costs;
  for (int i = 0; i < 50; ++i)
    for (const std::uint32_t tokens : {1, 2, 8, 32, 256}) {
      StepLoad load;
      load.add_row(0, tokens, false);
      costs.learn(load, 0.01 * tokens);
    }
  const ForecastServer server{.costs = &costs};
  const auto request = [](std::uint64_t arrival, std::uint32_t prompt) {
    return ForecastRequest{
        .demand = {.tenant = TenantId{1}, .arrival = arrival, .prompt_tokens = prompt}, .known = prompt, .answer = 10};
  };
  std::vector<ForecastRequest> running = {request(1, 20)};
  running[0].is_running = true;
  running[0].promised = 1.5;
  running[0].promised_last = true;
  CHECK(missed(server, running).empty());
  CHECK(forecast(server, running, request(2, 1)).broken.empty());
  CHECK(forecast(server, running, request(2, 300)).broken == std::vector<std::size_t>{0});
  running[0].promised = 0.01;  // is missed anyway
  CHECK(missed(server, running) == std::vector<std::size_t>{0});
  CHECK(forecast(server, running, request(2, 300)).broken.empty());
}

TEST_CASE("answers are expected to be as long as a tenant's, or all tenants', were") {
  AnswerLengths lengths;
  CHECK(lengths.expected(TenantId{1}, 0) > 0);
  for (int i = 0; i < 100; ++i) lengths.learn(TenantId{1}, 40);
  CHECK(lengths.expected(TenantId{1}, 0) == 40);
  CHECK(lengths.expected(TenantId{1}, 30) == 10);
  CHECK(lengths.expected(TenantId{1}, 500) == 10);  // a quarter of the mean
  CHECK(lengths.expected(TenantId{2}, 0) == 40);
  for (std::uint32_t tenant = 2; tenant < 3000; ++tenant) lengths.learn(TenantId{tenant}, 100);
  CHECK(lengths.expected(TenantId{2999}, 0) == 100);
}
