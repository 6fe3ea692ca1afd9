// An hour of a busy server in simulated time: tenants of random weights, floors and habits, steps that stall or fail,
// clients that stop reading, sessions, and a batcher and a keeper that die. Beside it runs a plain account of what each
// tenant was given, which knows of nothing but time.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/scheduler/serving_sim.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

constexpr std::uint32_t kNumTenants = 6;

// What the shares promise, in the plainest terms: while two tenants both want computing, what they get divided by their
// weights does not drift apart. For each pair the account holds how far it has, from the lowest point of the interval.
class PlainAccount {
 public:
  explicit PlainAccount(std::vector<double> weights) : weights_(std::move(weights)), given_(weights_.size()) {}

  // Since the last call the tenants were given so many seconds; `wants`: those that wanted computing all the time.
  void step(const std::vector<double>& seconds, const std::vector<bool>& wants) {
    for (std::size_t i = 0; i < given_.size(); ++i) given_[i] += seconds[i] / weights_[i];
    for (std::size_t i = 0; i < given_.size(); ++i) {
      for (std::size_t j = 0; j < given_.size(); ++j) {
        auto& [lowest, is_on] = pairs_[{i, j}];
        const double ahead = given_[i] - given_[j];
        if (!wants[i] || !wants[j]) {
          is_on = false;
          continue;
        }
        lowest = std::exchange(is_on, true) ? std::min(lowest, ahead) : ahead;
        furthest_ = std::max(furthest_, ahead - lowest);
      }
    }
  }
  // The most that one was given more than another, in seconds of a tenant of weight 1.
  double furthest() const { return furthest_; }

 private:
  struct Interval {
    double lowest = 0;
    bool is_on = false;
  };
  std::vector<double> weights_, given_;
  std::map<std::pair<std::size_t, std::size_t>, Interval> pairs_;
  double furthest_ = 0;
};

// How a tenant uses the server for some minutes.
enum class Habit : std::uint8_t { idle, one_stream, chats, crowd, flood };

}  // namespace

TEST_CASE("an hour of tenants of all habits: each has its share whatever else happens") {
  const std::uint64_t seed = test::kSanitized ? 1 : GENERATE(1, 2, 3);
  const double hour = test::kSanitized ? 300 : 3600;
  std::mt19937_64 random(seed);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  const auto below = [&](std::uint32_t count) { return static_cast<std::uint32_t>(random() % count); };

  SimOptions options{.groups = {{.num_blocks = 300}},
                     .planner = {128, 8},
                     .seed = seed,
                     .repeat_probability = 0.05,
                     .quick_messages = true};
  options.failure_probability = 0.002;
  options.saves_contents = true;
  // Now and then a step takes much longer than its tokens do: something else ran on the machine.
  options.step_cost = [noise = std::mt19937_64(seed)](const StepLoad& load) mutable {
    const double stall = noise() % 200 == 0 ? 1 : 0;
    return stall + 0.02 + 0.001 * load.num_tokens;
  };
  std::vector<double> weights;
  for (std::uint32_t i = 0; i < kNumTenants; ++i) weights.push_back(std::exp(uniform(std::log(0.3), std::log(3))));
  options.limits[TenantId{1}].min_kv_blocks = 60;
  options.limits[TenantId{2}].max_kv_blocks = 90;
  options.limits[TenantId{2}].min_kv_blocks = 20;
  for (std::uint32_t i = 0; i < kNumTenants; ++i) {
    TenantLimits& limits = options.limits[TenantId{i + 1}];
    limits.others_min_kv_blocks = 80 - limits.min_kv_blocks.value_or(0);
  }
  ServingSim sim(options);
  for (std::uint32_t i = 0; i < kNumTenants; ++i) sim.set_weight(TenantId{i + 1}, weights[i]);

  struct Tenant {
    Habit habit = Habit::idle;
    double changes = 0;
    std::vector<RequestNumber> open;
    RequestNumber chat = 0;  // the last turn of its conversation
  };
  std::vector<Tenant> tenants(kNumTenants);
  const auto tokens = [&](std::uint32_t count) {
    std::vector<TokenId> result(count);
    for (TokenId& token : result) token = static_cast<TokenId>(random() % 50000);
    return result;
  };
  const auto submit = [&](TenantId tenant, std::uint32_t prompt, std::uint32_t answer) {
    return sim.submit(tokens(prompt), answer, static_cast<std::int32_t>(below(3)) - 1,
                      {static_cast<cache::ScopeId>(tenant)}, tenant);
  };
  const auto act = [&](std::uint32_t index) {
    Tenant& tenant = tenants[index];
    const TenantId id{index + 1};
    std::erase_if(tenant.open, [&](RequestNumber number) { return sim.request(number).ended; });
    if (sim.time() >= tenant.changes) {
      tenant.habit = static_cast<Habit>(below(5));
      tenant.changes = sim.time() + uniform(5, 120);
      if (tenant.habit == Habit::idle && below(2) == 0)
        for (const RequestNumber number : tenant.open) sim.cancel(number);
    }
    if (!tenant.open.empty() && below(400) == 0) {
      const RequestNumber any = tenant.open[random() % tenant.open.size()];
      below(2) == 0 ? sim.park(any) : sim.unpark(any);
    }
    switch (tenant.habit) {
      case Habit::idle:
        for (const RequestNumber number : tenant.open) sim.unpark(number);
        break;
      case Habit::one_stream:
        if (tenant.open.empty()) tenant.open.push_back(submit(id, 20, 400));
        break;
      case Habit::chats: {
        if (!tenant.open.empty()) break;
        const bool goes_on = tenant.chat != 0 && sim.request(tenant.chat).tokens.size() < 600;
        tenant.chat = goes_on ? sim.submit_turn(tenant.chat, tokens(1 + below(60)), 1 + below(60))
                              : submit(id, 50 + below(100), 30);
        tenant.open.push_back(tenant.chat);
        break;
      }
      case Habit::crowd:
        if (tenant.open.size() < 12) tenant.open.push_back(submit(id, 1 + below(300), 1 + below(100)));
        break;
      case Habit::flood:
        while (tenant.open.size() < 40) tenant.open.push_back(submit(id, 200 + below(400), 1 + below(10)));
        break;
    }
  };

  PlainAccount account(weights);
  std::vector<double> before(kNumTenants, 0), charged(kNumTenants, 0);
  std::vector<bool> wanted(kNumTenants, false);
  std::uint64_t num_steps = 0, num_kills = 0;
  double next_kill = 60;
  while (sim.time() < hour) {
    for (std::uint32_t i = 0; i < kNumTenants; ++i) act(i);
    if (sim.time() >= next_kill) {
      below(3) == 0 ? sim.kill_keeper() : sim.kill_batcher();
      ++num_kills;
      next_kill = sim.time() + uniform(10, 200);
    }
    if (!sim.tick()) sim.wait_until(sim.time() + 0.1);
    for (std::uint32_t i = 0; i < kNumTenants; ++i) wanted[i] = wanted[i] && sim.wants_computing(TenantId{i + 1});
    if (sim.num_steps() == num_steps) continue;
    num_steps = sim.num_steps();
    std::vector<double> given(kNumTenants);
    for (std::uint32_t i = 0; i < kNumTenants; ++i) {
      const double seconds = sim.seconds_of(TenantId{i + 1});
      given[i] = seconds - std::exchange(before[i], seconds);
    }
    account.step(given, wanted);
    for (std::uint32_t i = 0; i < kNumTenants; ++i) wanted[i] = sim.wants_computing(TenantId{i + 1});
  }
  double total = 0, charges = 0;
  for (std::uint32_t i = 0; i < kNumTenants; ++i) {
    total += sim.seconds_of(TenantId{i + 1});
    charges += sim.charged_to(TenantId{i + 1});
  }
  for (Tenant& tenant : tenants)
    for (const RequestNumber number : tenant.open) sim.unpark(number);
  sim.drain(20'000'000);
  for (const auto& [number, request] : sim.requests())
    if (request.tokens != ServingSim::expected_tokens(request)) FAIL("request " << number << " has a wrong answer");

  const double least_weight = *std::ranges::min_element(weights);
  INFO("seed " << seed << ": " << num_steps << " steps, " << num_kills << " deaths, " << sim.num_failures()
               << " failed steps, " << sim.num_preemptions() << " preemptions, " << sim.requests().size()
               << " requests; least weight " << least_weight << ", furthest apart " << account.furthest() << " s");
  // Three steps that stall one after the other, all charged to the tenant of the least weight.
  CHECK(account.furthest() < 1 + 3.5 / least_weight);
  CHECK(charges == Approx(total));
  CHECK(total > 0.9 * hour);
  CHECK(num_kills > 0);
  CHECK(sim.num_preemptions() > 0);
}
