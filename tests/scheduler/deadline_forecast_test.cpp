// Forecasts beside what happens in the simulation of tests/scheduler/serving_sim.h, in which only steps take time.
#include "scheduler/deadline_forecast.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "tests/scheduler/serving_sim.h"

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

SimOptions options_of(std::uint64_t seed) {
  SimOptions options{.groups = {{.num_blocks = 4000}}, .planner = {512, 16, 0.2}, .seed = seed, .repeat_probability = 0};
  options.step_cost = transformer(seed);
  return options;
}

// Clients that ask at random times for answers of random lengths.
class Crowd {
 public:
  explicit Crowd(std::uint64_t seed) : sim(options_of(seed)), random_(seed) {}

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
      // As the server, which ends a stream at its deadline.
      std::erase_if(open, [&](RequestNumber number) {
        const SimRequest& request = sim.request(number);
        const bool is_late = *request.deadline < (request.ended ? request.ended_at : sim.time());
        if (request.ended || is_late) sim.margin.learn(!is_late);
        if (is_late) sim.cancel(number);
        return request.ended || is_late;
      });
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

TEST_CASE("experiment", "[.]") {
  for (const double with : {1.0, 0.5}) for (const int tenants : {1, 4}) 
  for (const double rate : {0.3, 0.6, 0.9, 1.2, 1.5, 2.0, 3.0, 4.0}) {
    Crowd crowd(1);
    crowd.run(1, 30, 0);
    const auto t = crowd.run(rate, 400, with, tenants);
    printf("with %.1f tenants %d rate %.1f asked %u margin %.2f promised %u kept %.3f refused %u goodput %.1f\n", with, tenants, rate, t.asked, crowd.sim.margin.factor(), t.promised,
           double(t.kept) / t.promised, t.refused, t.goodput);
  }
}
