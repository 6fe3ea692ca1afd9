// What a tenant can learn of the prompts that another one has cached: queue, planner and leases together, in simulated
// time (tests/scheduler/serving_sim.h). With blocks for all, nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <tuple>
#include <vector>

#include "bench/auc.h"
#include "cache/scope.h"
#include "tests/scheduler/serving_sim.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

constexpr TenantId kAnn{1}, kBob{2};
using Prompt = std::vector<TokenId>;

std::vector<Prompt> prompts_of(std::mt19937_64& random, std::size_t count, std::size_t tokens, TokenId first_id = 0) {
  std::vector<Prompt> prompts(count, Prompt(tokens));
  for (Prompt& prompt : prompts)
    for (TokenId& token : prompt) token = first_id + static_cast<TokenId>(random() % 50000);
  return prompts;
}

// Prompts of which some share a beginning with one another.
std::vector<Prompt> related_prompts(std::mt19937_64& random) {
  std::vector<Prompt> prompts = prompts_of(random, 12, 150);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    std::copy_n(prompts[i % 3].begin(), 40 * (i % 4), prompts[i].begin());
  return prompts;
}

// Others, of the same lengths and with the same common beginnings among themselves.
std::vector<Prompt> unlike(std::vector<Prompt> prompts) {
  for (Prompt& prompt : prompts)
    for (TokenId& token : prompt) token += 100'000;
  return prompts;
}

// All that happens to Bob's requests, in order: every step while he has one, and what became of each.
struct Seen {
  std::vector<StepPlan> plans;
  std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, double>> requests;

  friend bool operator==(const Seen&, const Seen&) = default;
};

// Bob asks for his prompts after Ann has asked for hers, and beside her asking for them again.
Seen seen_by_bob(const std::vector<Prompt>& of_ann, const std::vector<Prompt>& of_bob, bool in_one_scope,
                 std::uint64_t seed) {
  ServingSim sim({.groups = {{.num_blocks = 4000}}, .planner = {96, 6}, .seed = seed});
  const auto submit = [&](TenantId tenant, const Prompt& prompt) {
    return sim.submit(prompt, 20, 0, cache::scopes_for(tenant, in_one_scope ? "public" : ""), tenant);
  };
  for (std::size_t i = 0; i < of_ann.size() / 2; ++i) submit(kAnn, of_ann[i]);
  sim.drain();
  std::vector<RequestNumber> numbers;
  for (std::size_t i = 0; i < of_bob.size(); ++i) {
    submit(kAnn, of_ann[i]);
    numbers.push_back(submit(kBob, of_bob[i]));
  }
  Seen seen;
  std::uint64_t step = sim.num_steps();
  while (sim.tick()) {
    if (sim.num_steps() == step) continue;
    step = sim.num_steps();
    seen.plans.push_back(sim.last_plan());
  }
  for (const RequestNumber number : numbers) {
    const SimRequest& request = sim.request(number);
    REQUIRE(request.ended);
    seen.requests.emplace_back(request.cached_tokens, request.resumed_at, request.num_admissions,
                               request.first_token_at - request.submitted_at);
  }
  return seen;
}

}  // namespace

TEST_CASE("no step and no lease of a tenant depends on whether another has cached or computes the same prompts") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::vector<Prompt> prompts = related_prompts(random);
    const Seen beside_same = seen_by_bob(prompts, prompts, false, seed);
    CHECK(beside_same == seen_by_bob(unlike(prompts), prompts, false, seed));
    // In a scope that both use, it does: the comparison can fail.
    CHECK_FALSE(seen_by_bob(prompts, prompts, true, seed) == seen_by_bob(unlike(prompts), prompts, true, seed));
  }
}

TEST_CASE("2,000 probes do not tell which prompts another tenant has cached, neither by counts nor by steps") {
  for (const bool in_one_scope : {false, true}) {
    std::mt19937_64 random(11);
    ServingSim sim({.groups = {{.num_blocks = 4000}}, .planner = {16, 8}, .seed = 11, .repeat_probability = 0});
    const auto ask = [&](TenantId tenant, const Prompt& prompt) {
      const auto number = sim.submit(prompt, 1, 0, cache::scopes_for(tenant, in_one_scope ? "public" : ""), tenant);
      sim.drain();
      return sim.request(number);
    };
    const std::size_t num_probes = in_one_scope || test::kSanitized ? 200 : 2000;  // few where it is obvious
    const std::vector<Prompt> cached = prompts_of(random, num_probes / 2, 40),
                              others = prompts_of(random, num_probes / 2, 40);
    for (const Prompt& prompt : cached) (void)ask(kAnn, prompt);
    std::vector<double> counts[2], times[2];
    for (std::size_t i = 0; i < num_probes; ++i) {
      const SimRequest probe = ask(kBob, i % 2 == 0 ? cached[i / 2] : others[i / 2]);
      counts[i % 2].push_back(probe.cached_tokens);
      times[i % 2].push_back(probe.first_token_at - probe.submitted_at);
    }
    if (in_one_scope) {
      CHECK(bench::auc(counts[0], counts[1]) == 1);
      CHECK(bench::auc(times[0], times[1]) > 0.99);
    } else if (!test::kSanitized) {  // too few to tell
      CHECK(bench::auc(counts[0], counts[1]) <= 0.55);
      CHECK(bench::auc(times[0], times[1]) <= 0.55);
    }
  }
}

TEST_CASE("the area under the curve is that of the better direction, and ties count half") {
  CHECK(bench::auc({1, 2, 3}, {4, 5}) == 1);
  CHECK(bench::auc({4, 5}, {1, 2, 3}) == 1);
  CHECK(bench::auc({1, 1, 1}, {1, 1}) == 0.5);
  CHECK(bench::auc({1, 3}, {2, 2}) == 0.5);
  CHECK(bench::auc({1, 2}, {2, 3}) == Approx(0.875));
  CHECK(bench::auc({}, {1}) == 0.5);
}
