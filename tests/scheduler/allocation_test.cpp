// A warm step of the planner and of the cache allocates nothing.
#include <catch2/catch.hpp>

#include "cache/lease_book.h"
#include "scheduler/step_planner.h"
#include "tests/support/count_allocations.h"

using namespace troupe;
using namespace troupe::scheduler;

TEST_CASE("a warm step of the planner allocates nothing") {
  FairShares shares;
  StepPlanner planner({.max_step_tokens = 64, .max_sequences = 16}, shares);
  for (SequenceId id = 1; id <= 16; ++id)
    planner.add({.sequence = id,
                 .rank = {0, id},
                 .known = 5 * static_cast<std::uint32_t>(id),
                 .computed = 0,
                 .num_blocks = 1,
                 .max_known = 100000});
  StepPlan plan;
  std::vector<BlockNeed> needs;
  std::uint64_t before = 0;
  for (std::uint64_t step = 1; step <= 500; ++step) {
    if (step == 50) before = test::num_allocations();
    needs.clear();
    planner.needs(needs);
    for (const BlockNeed& need : needs) planner.grant(need.sequence, need.num_blocks);
    planner.plan(step, 1, plan);
    if (step % 7 == 0) planner.inherit(16, step % 2 == 0 ? std::optional<Rank>({-1, 0}) : std::nullopt);
    for (const PlanItem& item : plan.items) {
      planner.advance(item.sequence, item.wants_logits ? 1 : 0);
      static_cast<void>(planner.newly_full(item.sequence));
    }
    static_cast<void>(planner.victim());
  }
  const std::uint64_t allocations = test::num_allocations() - before;
  REQUIRE(plan.items.size() == 16);
  REQUIRE(allocations == 0);
}

TEST_CASE("a step in which no block fills up costs the cache no allocation, also while it holds shared prefixes") {
  cache::LeaseBook book({.groups = {{.num_blocks = 64}}});
  cache::LeaseEffects effects;
  for (SequenceId id = 1; id <= 16; ++id) {
    const auto tokens = std::make_shared<const std::vector<TokenId>>(2 * kBlockSize + 1, id % 2);
    book.acquire({{1, id, 1, 0}, {0, id}, {cache::kPublicScope}, tokens, 3, 0}, effects);
    if (id > 2) continue;  // the leaders; all others wait for them
    book.commit({{1, id, 2, 1}, 0, std::vector<TokenId>(tokens->begin(), tokens->end() - 1)}, effects);
  }
  REQUIRE(book.counters().waiting == 0);
  const std::uint64_t before = test::num_allocations();
  std::uint32_t referenced = 0;
  for (std::uint64_t step = 1; step <= 500; ++step) {
    effects.clear();
    book.step_done(1, step);
    referenced += book.counters().groups[0].referenced();
  }
  REQUIRE(test::num_allocations() == before);
  REQUIRE(referenced == 500 * (4 + 16));  // two prefixes of two blocks, and one block of its own for each
}
