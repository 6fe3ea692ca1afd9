#include "scheduler/cost_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

using namespace troupe::scheduler;

namespace {

StepLoad decodes(std::uint32_t rows, std::uint32_t context) {
  StepLoad load;
  for (std::uint32_t i = 0; i < rows; ++i) load.add_row(context, 1, true);
  return load;
}

StepLoad prefill(std::uint32_t tokens, std::uint32_t computed, std::uint32_t rows = 0) {
  StepLoad load = decodes(rows, 500);
  load.add_row(computed, tokens, false);
  return load;
}

}  // namespace

TEST_CASE("the load of a step counts tokens, outputs and the positions attended to") {
  StepLoad load;
  load.add_row(10, 1, true);
  CHECK(load == StepLoad{1, 1, 11});
  load.add_row(0, 4, false);
  CHECK(load == StepLoad{5, 1, 11 + 1 + 2 + 3 + 4});
}

TEST_CASE("one step says what a similar one takes") {
  CostModel model;
  CHECK(model.predict(decodes(1, 100)) == 0);
  model.learn(decodes(1, 100), 0);  // a clock that did not move
  CHECK(model.predict(decodes(1, 100)) == 0);
  model.learn(prefill(512, 0), 1.8);
  CHECK(model.predict(prefill(512, 0)) == Approx(1.8).epsilon(0.01));
  CHECK(model.predict(prefill(512, 1024)) > 1.7);
  CHECK(model.predict(decodes(1, 10)) > 0);  // of the other kind nothing better is known
}

TEST_CASE("after 200 steps of any mix the error is small, and stays so when the machine becomes slower") {
  std::mt19937_64 random(7);
  const auto noise = [&] { return std::exp(std::normal_distribution<>(0, 0.05)(random)); };
  double slower = 1;
  // A transformer of 1 B weights on two cores: reads 600 MB, multiplies 300 tokens a second.
  const auto seconds = [&](const StepLoad& load) {
    const double reading = 0.045, multiplying = load.num_tokens / 300.0, attention = load.num_attended * 2e-7;
    return slower * (std::max(reading, multiplying) + attention + 0.002 * load.num_outputs + 0.0002) * noise();
  };
  CostModel model;
  for (int phase = 0; phase < 3; ++phase) {
    std::vector<double> errors;
    for (int step = 0; step < 600; ++step) {
      StepLoad load = random() % 4 == 0 ? prefill(32 * (1 + random() % 16), 32 * (random() % 60), random() % 16)
                                        : decodes(1 + random() % 12, 10 + random() % 2000);
      const double took = seconds(load);
      if (step >= 200) errors.push_back(std::abs(model.predict(load) - took) / took);
      model.learn(load, took);
    }
    std::ranges::sort(errors);
    INFO("phase " << phase);
    CHECK(errors[errors.size() / 2] < 0.10);
    CHECK(errors[errors.size() * 95 / 100] < 0.30);
    slower *= 1.7;
  }
}

TEST_CASE("ten thousand equal steps do not spoil what is known of others") {
  CostModel model;
  std::mt19937_64 random(3);
  const auto seconds = [](const StepLoad& load) { return 0.01 + load.num_tokens * 0.003 + load.num_attended * 1e-7; };
  for (int i = 0; i < 50; ++i) {
    const StepLoad load = prefill(32 * (1 + random() % 16), 32 * (random() % 30));
    model.learn(load, seconds(load));
  }
  const StepLoad same = prefill(512, 0);
  for (int i = 0; i < 10'000; ++i) model.learn(same, seconds(same) * (i % 2 == 0 ? 1.02 : 0.98));
  for (const StepLoad& load : {prefill(64, 0), prefill(256, 900), prefill(512, 512)})
    CHECK(model.predict(load) == Approx(seconds(load)).epsilon(0.2));
}
