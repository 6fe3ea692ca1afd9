// How long steps with parts of prompts take, by what the cost model has learned.
#include "scheduler/step_bound.h"

#include <catch2/catch.hpp>
#include <memory>

#include "scheduler/step_planner.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

struct Steps {
  explicit Steps(double max_stall_seconds, std::shared_ptr<ServedTime> served = std::make_shared<ServedTime>())
      : shares(std::move(served)),
        planner({.max_step_tokens = 512, .max_sequences = 4, .max_stall_seconds = max_stall_seconds}, shares) {}

  void add(SequenceId id, std::uint32_t known, std::uint32_t computed = 0) {
    planner.add({.sequence = id,
                 .rank = {0, id},
                 .known = known,
                 .computed = computed,
                 .num_blocks = 3000,
                 .max_known = 100'000});
  }
  // A step of a machine that takes so long for each token; returns how many it had.
  std::uint32_t run(double seconds_per_token) {
    shares.refresh();
    planner.plan(1, 1, step);
    planner.charge(step, step.load.num_tokens * seconds_per_token);
    for (const PlanItem& item : step.items) planner.advance(item.sequence, item.wants_logits ? 1 : 0);
    return step.load.num_tokens;
  }

  FairShares shares;
  StepPlanner planner;
  StepPlan step;
};

}  // namespace

TEST_CASE("while a sequence decodes, chunks are cut to what takes max_stall_seconds, or to a block") {
  Steps steps(0.1);
  steps.add(1, 20, 19);
  steps.add(2, 80'000);
  CHECK(steps.run(0.001) == 512);  // nothing is known
  for (int i = 0; i < 50; ++i) {
    const std::uint32_t tokens = steps.run(0.001);
    CHECK(tokens <= 120);
    CHECK(tokens >= 33);
  }
  for (int i = 0; i < 50; ++i) steps.run(0.01);  // the machine became slow
  CHECK(steps.run(0.01) == 33);
  for (int i = 0; i < 200; ++i) steps.run(0.0005);
  CHECK(steps.run(0.0005) > 33);  // it grows again, block by block
  steps.planner.park(1);
  CHECK(steps.run(0.0005) > 200);  // nothing waits
}

TEST_CASE("a step of prompts alone takes twice max_stall_seconds, or has two blocks of them") {
  Steps steps(0.1);
  steps.add(1, 80'000);
  CHECK(steps.run(0.001) == 512);  // nothing is known
  for (int i = 0; i < 50; ++i) steps.run(0.001);
  CHECK(steps.run(0.001) <= 200);
  CHECK(steps.run(0.001) >= 160);
  for (int i = 0; i < 100; ++i) steps.run(0.01);
  CHECK(steps.run(0.01) == 64);
  steps.planner.remove(1);
  for (const SequenceId id : {2, 3, 4}) steps.add(id, 40);
  CHECK(steps.run(0.01) == 64);  // of all of them together
  REQUIRE(steps.step.items.size() == 2);
  CHECK(steps.step.items[0].num_tokens == 40);
  CHECK(steps.step.items[1].num_tokens == 24);
}

TEST_CASE(
    "while other models have work, chunks are cut to a part of max_stall_seconds, with no decode beside them, too") {
  const auto served = std::make_shared<ServedTime>();
  FairShares second(served), third(served);
  Steps steps(0.27, served);
  steps.add(1, 80'000);
  steps.shares.begin(TenantId{1});
  for (int i = 0; i < 20; ++i) CHECK(steps.run(0.001) >= 480);
  second.begin(TenantId{2});
  CHECK(steps.run(0.001) == 128);
  CHECK(steps.run(0.001) == 128);
  third.begin(TenantId{2});
  CHECK(steps.run(0.001) == 64);
  second.end(TenantId{2});
  third.end(TenantId{2});
  CHECK(steps.run(0.001) >= 480);
}
