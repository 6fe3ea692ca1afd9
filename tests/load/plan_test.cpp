#include "bench/load/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

using namespace troupe;
using namespace troupe::load;

namespace {

// A closed loop of 8 clients and 1,000 requests for a vocabulary of 512 ids.
PlanSpec closed_spec() {
  PlanSpec spec;
  spec.seed = 42;
  spec.pace.clients = 8;
  spec.pace.num_requests = 1000;
  spec.vocabulary = {.size = 512, .avoid = {1, 2}, .begin = 1, .context = 1024};
  spec.shape.prompt = {Lengths::Kind::uniform, 16, 64};
  spec.shape.output = {Lengths::Kind::uniform, 4, 32};
  return spec;
}

PlanSpec open_spec(double rate) {
  PlanSpec spec = closed_spec();
  spec.pace.clients = 0;
  spec.pace.rate = rate;
  return spec;
}

Plan made(const PlanSpec& spec) {
  auto plan = Plan::make(spec);
  if (!plan) FAIL(plan.error().message);
  return std::move(*plan);
}

std::vector<double> gaps(const Plan& plan) {
  std::vector<double> result;
  for (std::uint64_t i = 1; i < *plan.size(); ++i) result.push_back(plan.arrival_s(i) - plan.arrival_s(i - 1));
  return result;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Standard deviation over mean: 1 for a Poisson process, 0 for constant gaps.
double variation(const std::vector<double>& values) {
  const double center = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - center) * (value - center);
  return std::sqrt(squares / static_cast<double>(values.size())) / center;
}

const std::vector<TokenId>& ids_of(const PlannedRequest& request) {
  return std::get<std::vector<TokenId>>(request.prompt);
}

}  // namespace

TEST_CASE("the same seed makes the same requests, in any order of asking; another seed others") {
  PlanSpec spec = closed_spec();
  spec.faults.cancel = 0.3;
  const Plan plan = made(spec), again = made(spec);
  for (std::uint64_t i = 1000; i-- > 0;) {
    const PlannedRequest a = plan.request(i), b = again.request(i);
    REQUIRE(ids_of(a) == ids_of(b));
    REQUIRE(a.sampling.max_tokens == b.sampling.max_tokens);
    REQUIRE(a.sampling.seed == b.sampling.seed);
    REQUIRE(a.fault == b.fault);
    REQUIRE(a.fault_point.delay_s == b.fault_point.delay_s);
  }
  spec.seed = 43;
  CHECK(ids_of(made(spec).request(0)) != ids_of(plan.request(0)));
}

TEST_CASE("prompts begin as the model wants, hold only allowed ids, and have the lengths asked for") {
  const Plan plan = made(closed_spec());
  std::set<std::size_t> lengths;
  std::set<TokenId> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const PlannedRequest request = plan.request(i);
    const std::vector<TokenId>& prompt = ids_of(request);
    lengths.insert(prompt.size());
    REQUIRE(prompt.front() == 1);
    for (std::size_t k = 1; k < prompt.size(); ++k) {
      REQUIRE((prompt[k] == 0 || (prompt[k] > 2 && prompt[k] < 512)));
      seen.insert(prompt[k]);
    }
    REQUIRE(*request.sampling.max_tokens >= 4);
    REQUIRE(*request.sampling.max_tokens <= 32);
  }
  CHECK(*lengths.begin() == 16);
  CHECK(*lengths.rbegin() == 64);
  CHECK(seen.size() == 510);
}

TEST_CASE("the stated share of requests begins with one of the shared prefixes, each about as often") {
  PlanSpec spec = closed_spec();
  spec.shape.prefix_share = 0.75;
  spec.shape.num_prefixes = 4;
  spec.shape.prefix_tokens = 100;
  const Plan plan = made(spec);
  REQUIRE(plan.prefixes().size() == 4);
  std::map<std::uint32_t, int> counts;
  int shared = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const PlannedRequest request = plan.request(i);
    if (!request.prefix) continue;
    ++shared;
    ++counts[*request.prefix];
    const std::vector<TokenId>& prefix = plan.prefixes()[*request.prefix];
    REQUIRE(prefix.size() == 100);
    REQUIRE(prefix.front() == 1);  // as the model wants prompts to begin
    REQUIRE(std::equal(prefix.begin(), prefix.end(), ids_of(request).begin()));
    REQUIRE(ids_of(request).size() >= 116);
  }
  CHECK(shared == Approx(750).margin(70));  // 5 standard deviations
  for (const auto& [prefix, count] : counts) CHECK(count == Approx(shared / 4.0).margin(60));
}

TEST_CASE("drawn lengths are cut to the model's context, and a shortest request above it is an error") {
  PlanSpec spec = closed_spec();
  spec.shape.prompt = {Lengths::Kind::lognormal, 600, 600};
  spec.shape.output = {Lengths::Kind::lognormal, 300, 300};
  spec.shape.prefix_share = 0.5;
  spec.shape.prefix_tokens = 200;
  const Plan plan = made(spec);
  std::size_t longest = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const PlannedRequest request = plan.request(i);
    const std::size_t own = ids_of(request).size() - (request.prefix ? 200 : 0);
    REQUIRE(own >= 1);
    REQUIRE(*request.sampling.max_tokens >= 1);
    longest = std::max(longest, ids_of(request).size() + *request.sampling.max_tokens);
  }
  CHECK(longest == 1024);

  spec.shape.prompt = {Lengths::Kind::fixed, 800, 0};
  spec.shape.output = {Lengths::Kind::fixed, 64, 0};
  const auto refused = Plan::make(spec);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("200 tokens of prefix, 800 of its own and 64 of answer") != std::string::npos);
}

TEST_CASE("arrivals of an open loop come at the rate, and as evenly as the burstiness says") {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    PlanSpec spec = open_spec(20);
    spec.pace.num_requests = 20'000;
    spec.pace.burstiness = burstiness;
    const std::vector<double> between = gaps(made(spec));
    INFO("burstiness " << burstiness);
    CHECK(mean(between) == Approx(0.05).epsilon(0.08));
    CHECK(variation(between) == Approx(1 / std::sqrt(burstiness)).epsilon(0.08));
  }
  PlanSpec spec = open_spec(20);
  spec.pace.burstiness = 0;
  for (const double gap : gaps(made(spec))) REQUIRE(gap == Approx(0.05));
}

TEST_CASE("a ramp raises the rate linearly to its full height") {
  PlanSpec spec = open_spec(100);
  spec.pace.burstiness = 0;
  spec.pace.num_requests.reset();
  spec.pace.duration_s = 20;
  spec.pace.ramp_from = 20;
  spec.pace.ramp_up_s = 10;
  const Plan plan = made(spec);
  const auto arrivals_between = [&](double from, double to) {
    int count = 0;
    for (std::uint64_t i = 0; i < *plan.size(); ++i) count += plan.arrival_s(i) >= from && plan.arrival_s(i) < to;
    return count;
  };
  CHECK(arrivals_between(0, 1) == Approx(24).margin(1));
  CHECK(arrivals_between(5, 6) == Approx(64).margin(1));
  CHECK(arrivals_between(9, 10) == Approx(96).margin(1));
  CHECK(arrivals_between(10, 20) == Approx(1000).margin(1));
}

TEST_CASE("a ramp of clients lets them begin one after another") {
  PlanSpec spec = closed_spec();
  spec.pace.ramp_from = 2;
  spec.pace.ramp_up_s = 6;
  const Plan plan = made(spec);
  CHECK(plan.client_start_s(0) == 0);
  CHECK(plan.client_start_s(1) == 0);
  CHECK(plan.client_start_s(2) == 0);
  CHECK(plan.client_start_s(3) == Approx(1));
  CHECK(plan.client_start_s(7) == Approx(5));
}

TEST_CASE("faults are injected at the stated rates, half of them before the first token") {
  PlanSpec spec = closed_spec();
  spec.pace.num_requests = 10'000;
  spec.faults.cancel = 0.1;
  spec.faults.disconnect = 0.2;
  spec.faults.slow_reader = 0.05;
  spec.faults.garbage = 0.15;
  const Plan plan = made(spec);
  std::map<Fault, int> counts;
  int early = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const PlannedRequest request = plan.request(i);
    ++counts[request.fault];
    early += request.fault_point.after_tokens == 0;
    REQUIRE(request.fault_point.after_tokens <= *request.sampling.max_tokens);
    REQUIRE(request.fault_point.delay_s >= 0);
  }
  CHECK(counts[Fault::none] == Approx(5000).margin(250));
  CHECK(counts[Fault::cancel] == Approx(1000).margin(150));
  CHECK(counts[Fault::disconnect] == Approx(2000).margin(200));
  CHECK(counts[Fault::slow_reader] == Approx(500).margin(110));
  CHECK(counts[Fault::garbage] == Approx(1500).margin(180));
  CHECK(early == Approx(5000).margin(250));
}

TEST_CASE("an impossible specification is refused with its numbers") {
  const auto message_of = [](PlanSpec spec) {
    const auto plan = Plan::make(std::move(spec));
    return plan ? std::string() : plan.error().message;
  };
  PlanSpec endless = closed_spec();
  endless.pace.num_requests.reset();
  CHECK(message_of(endless).find("never end") != std::string::npos);
  PlanSpec faulty = closed_spec();
  faulty.faults.cancel = 0.75;
  faulty.faults.garbage = 0.5;
  CHECK(message_of(faulty).find("add up to 1.25") != std::string::npos);
  PlanSpec steep = open_spec(5);
  steep.pace.ramp_from = 6;
  steep.pace.ramp_up_s = 1;
  CHECK(message_of(steep).find("begins at 6") != std::string::npos);
  PlanSpec flood = open_spec(1e6);
  flood.pace.num_requests.reset();
  flood.pace.duration_s = 3600;
  CHECK(message_of(flood).find("10000000 arrivals") != std::string::npos);
  PlanSpec no_clients = closed_spec();
  no_clients.pace.clients = 0;
  CHECK(message_of(no_clients).find("at least one client") != std::string::npos);
}
