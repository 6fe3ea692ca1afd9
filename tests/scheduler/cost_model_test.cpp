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

TEST_CASE("where no weight may become negative, predictions stay right") {
  CostModel model;
  std::mt19937_64 random(1);
  const auto seconds = [](const StepLoad& load) { return 0.01 + 0.005 * load.num_tokens; };
  model.learn(prefill(16, 4, 3), seconds(prefill(16, 4, 3)));
  for (std::uint32_t step = 0; step < 200; ++step) {
    StepLoad load = decodes(4, 20 + step);
    const auto num_drafts = static_cast<std::uint32_t>(random() % 5);
    for (std::uint32_t draft = 1; draft <= num_drafts; ++draft) load.add_row(20 + step + draft, 1, 1);
    if (step > 4) CHECK(model.predict(load) == Approx(seconds(load)).epsilon(0.02));
    model.learn(load, seconds(load));
  }
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

TEST_CASE("after 200 steps the error is small on machines of other shapes") {
  struct Machine {
    const char* name;
    double (*seconds)(const StepLoad&);
  };
  const auto machine = GENERATE(
      // A mixture: each token takes 8 of 64 experts, and each expert that any token takes is read once.
      Machine{"experts",
              [](const StepLoad& load) {
                const double experts = 64 * (1 - std::pow(1 - 8.0 / 64, load.num_tokens));
                return 0.01 + 0.001 * experts + 0.0015 * load.num_tokens + load.num_attended * 1e-7;
              }},
      // Recurrent layers: nothing is attended to, but each sequence's state is read and written.
      Machine{"states",
              [](const StepLoad& load) {
                return 0.02 + 0.0004 * load.num_tokens + 0.001 * load.num_outputs +
                       std::max(0.0, 0.002 * (load.num_tokens - 24.0));
              }},
      // A tiny model, of which most is attention.
      Machine{"attention",
              [](const StepLoad& load) { return 0.0002 + 0.00002 * load.num_tokens + load.num_attended * 3e-8; }});
  INFO(machine.name);
  std::mt19937_64 random(11);
  CostModel model;
  for (int step = 0; step < 200 + static_cast<int>(CostModel::kNumErrors); ++step) {
    const StepLoad load = random() % 3 == 0 ? prefill(32 * (1 + random() % 16), 32 * (random() % 60), random() % 16)
                                            : decodes(1 + random() % 32, 10 + random() % 2000);
    if (step == 200) CHECK(model.error().num_steps == 199);  // the first was not predicted
    model.learn(load, machine.seconds(load) * std::exp(std::normal_distribution<>(0, 0.05)(random)));
  }
  CHECK(model.error().num_steps == CostModel::kNumErrors);
  CHECK(model.error().median < 0.10);
  CHECK(model.error().p95 < 0.30);
}

TEST_CASE("what the rows of a step cost adds up to the step") {
  CostModel model;
  const auto seconds = [](const StepLoad& load) {
    return 0.01 + load.num_tokens * 0.003 + load.num_attended * 1e-6 + load.num_outputs * 0.002;
  };
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = prefill(32 * (1 + random() % 16), 32 * (random() % 60), random() % 16);
    model.learn(load, seconds(load));
  }
  StepLoad step, short_row, long_row, chunk;
  short_row.add_row(10, 1, true);
  long_row.add_row(5000, 1, true);
  chunk.add_row(64, 256, false);
  step.add_row(10, 1, true);
  step.add_row(5000, 1, true);
  step.add_row(64, 256, false);
  const double sum = model.share(short_row, step) + model.share(long_row, step) + model.share(chunk, step);
  CHECK(sum == Approx(model.predict(step)));
  CHECK(model.share(long_row, step) - model.share(short_row, step) == Approx(4990 * 1e-6).epsilon(0.1));
  CHECK(model.share(chunk, step) > 0.9 * 256 * 0.003);
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
