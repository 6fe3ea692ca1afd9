// A warm step of the planner allocates nothing: counted by replacing the global operator new of this program.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "scheduler/step_planner.h"

namespace {
std::atomic<std::uint64_t> num_allocations{0};
}

void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace troupe;
using namespace troupe::scheduler;

TEST_CASE("a warm step of the planner allocates nothing") {
  StepPlanner planner({.max_step_tokens = 64, .max_sequences = 16});
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
    if (step == 50) before = num_allocations;
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
  const std::uint64_t allocations = num_allocations - before;
  REQUIRE(plan.items.size() == 16);
  REQUIRE(allocations == 0);
}
