// How tenants shared a server, on runs made by hand.
#include "bench/load/report/fairness.h"

#include <catch2/catch.hpp>

#include "tests/load/records.h"

using namespace troupe::load;
using troupe::load::test::completed;
using troupe::load::test::run_of_tenants;

namespace {

// A request that is sent at `from_s` and receives a token each second until `to_s`.
RequestRecord steady(double from_s, double to_s, std::uint32_t tokens_per_s) {
  std::vector<Arrival> arrivals;
  for (double at_s = from_s + 0.5; at_s < to_s; at_s += 1) arrivals.push_back({at_s, tokens_per_s});
  return completed({.intended_s = from_s, .arrivals = arrivals, .end_s = to_s});
}

}  // namespace

TEST_CASE("Jain's index is 1 among equals, 1/n where one has all, and that of its definition between") {
  CHECK(jain_index(std::vector<double>{3, 3, 3}) == Approx(1));
  CHECK(jain_index(std::vector<double>{5, 0, 0, 0}) == Approx(0.25));
  CHECK(jain_index(std::vector<double>{1, 2, 3}) == Approx(36.0 / (3 * 14)));
  CHECK(jain_index(std::vector<double>{10, 20, 30}) == jain_index(std::vector<double>{1, 2, 3}));
  CHECK(jain_index({}) == 1);
  CHECK(jain_index(std::vector<double>{0, 0}) == 1);
}

TEST_CASE("shares are measured against the weights") {
  Run run = run_of_tenants({{steady(0, 10, 1)}, {steady(0, 10, 4)}});
  run.tenants[1].weight = 3;
  const auto fairness = fairness_of(run);
  REQUIRE(fairness);
  CHECK(fairness->shares[0].tokens.per_s == Approx(1));
  CHECK(fairness->shares[0].tokens.share == Approx(0.2));
  CHECK(fairness->shares[0].due == Approx(0.25));
  CHECK(fairness->shares[0].tokens.deviation == Approx(-0.2));
  CHECK(fairness->shares[1].tokens.deviation == Approx(0.8 / 0.75 - 1));
  CHECK(fairness->of_tokens.worst == 0);
  CHECK(fairness->of_tokens.jain == Approx(jain_index(std::vector<double>{1, 4.0 / 3})));

  run.tenants[1].weight = 4;
  CHECK(fairness_of(run)->of_tokens.jain == Approx(1));
  CHECK(fairness_of(run)->shares[1].tokens.deviation == Approx(0).margin(1e-12));
}

TEST_CASE("the time of computing is shared otherwise than tokens are, and is unknown without receipts") {
  RequestRecord prompts = steady(0, 10, 9), answers = steady(0, 10, 1);
  CHECK_FALSE(fairness_of(run_of_tenants({{prompts}, {answers}}))->of_time);
  prompts.compute_s = 2;
  answers.compute_s = 2;
  RequestRecord late = steady(2, 14, 1);  // waits for 2 s, and has 8 of 10 s before the end of the others
  late.queue_s = 2;
  late.compute_s = 5;
  const auto fairness = fairness_of(run_of_tenants({{prompts}, {answers}, {late}}));
  REQUIRE(fairness);
  REQUIRE(fairness->of_time);
  CHECK(fairness->from_s == 2);
  CHECK(fairness->shares[0].time.share == Approx(1.6 / 6.2));
  CHECK(fairness->shares[0].time.per_s == Approx(1.6 / 8));
  CHECK(fairness->shares[1].time.deviation == Approx(3 * 1.6 / 6.2 - 1));
  CHECK(fairness->shares[2].time.share == Approx(3 / 6.2));
  CHECK(fairness->of_time->worst == 2);
  CHECK(fairness->of_time->jain == Approx(jain_index(std::vector<double>{1.6, 1.6, 3})));
  CHECK(fairness->of_tokens.worst == 0);
  CHECK(fairness->shares[0].tokens.share == Approx(9.0 / 11));
}

TEST_CASE("only the time counts in which every tenant had requests") {
  const Run run = run_of_tenants({{steady(0, 20, 2)}, {steady(4, 10, 2)}});
  const auto fairness = fairness_of(run);
  REQUIRE(fairness);
  CHECK(fairness->from_s == 4);
  CHECK(fairness->to_s == 10);
  CHECK(fairness->shares[0].tokens.share == Approx(0.5));
  CHECK_FALSE(fairness_of(run_of_tenants({{steady(0, 5, 1)}, {steady(6, 9, 1)}})));
}

TEST_CASE("a prompt is served at the first token, cached tokens are not, and a vector's prompt is at its end") {
  const RequestRecord prompt =
      completed({.intended_s = 0, .arrivals = {{2, 1}, {3, 1}}, .end_s = 4, .prompt_tokens = 100, .cached_tokens = 64});
  const RequestRecord vectors = completed({.intended_s = 0, .end_s = 3, .prompt_tokens = 76});
  const RequestRecord later = completed({.intended_s = 3, .end_s = 4, .prompt_tokens = 1000});
  const auto fairness = fairness_of(run_of_tenants({{prompt}, {vectors, later}}));
  REQUIRE(fairness);
  CHECK(fairness->shares[0].tokens.per_s == Approx(38.0 / 4));
  CHECK(fairness->shares[1].tokens.per_s == Approx(76.0 / 4));  // the later one ends when the time does
}

TEST_CASE("a tenant that asks for nothing of the model has no share, and ends no time") {
  Run run = run_of_tenants({{steady(0, 10, 1)}, {steady(0, 1, 50)}, {steady(0, 10, 1)}});
  run.tenants[1].shares = false;
  const auto fairness = fairness_of(run);
  REQUIRE(fairness);
  REQUIRE(fairness->shares.size() == 2);
  CHECK(fairness->shares[1].tenant == 2);
  CHECK(fairness->shares[1].tokens.share == Approx(0.5));
  CHECK(fairness->to_s == 10);
  CHECK(fairness->of_tokens.jain == Approx(1));
}

TEST_CASE("one tenant, or none that was served, has no fairness") {
  CHECK_FALSE(fairness_of(run_of_tenants({{steady(0, 10, 1)}})));
  CHECK_FALSE(fairness_of(run_of_tenants({{steady(0, 10, 0)}, {steady(0, 10, 0)}})));
  CHECK_FALSE(fairness_of(run_of_tenants({{steady(0, 10, 1)}, {}})));
  CHECK_FALSE(fairness_of({}));
}
