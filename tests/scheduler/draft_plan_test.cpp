// Drafts in the planner's steps: how many proposals are verified, and what their results change.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "scheduler/step_planner.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

// A machine: what a step costs, in seconds.
struct Costs {
  double fixed = 0.02, token = 0.0005;
  double of(const StepLoad& load) const { return fixed + token * load.num_tokens; }
};

struct Drafts {
  explicit Drafts(PlannerOptions options = {.max_step_tokens = 64, .max_sequences = 8}, Costs machine = {})
      : costs(machine), planner(options, shares) {
    for (int round = 0; round < 30; ++round)
      for (const std::uint32_t rows : {1u, 2u, 4u, 8u, 16u, 24u, 64u}) {
        StepPlan learned;
        for (std::uint32_t row = 0; row < rows; ++row) learned.load.add_row(20, 1, row % 3 != 2);
        planner.charge(learned, costs.of(learned.load));
      }
  }

  // A sequence that decodes.
  void add(SequenceId id, std::uint32_t known = 10, std::uint32_t num_blocks = 100, std::uint32_t max_known = 3000) {
    planner.add({.sequence = id,
                 .rank = {0, id},
                 .known = known,
                 .computed = known - 1,
                 .num_blocks = num_blocks,
                 .max_known = max_known,
                 .tenant = TenantId{static_cast<std::uint32_t>(id)}});
  }
  void accept(SequenceId id, std::uint32_t right, bool was_wrong, int times = 20) {
    for (int i = 0; i < times; ++i) planner.observe_draft(id, right, was_wrong);
  }
  const std::vector<PlanItem>& plan() {
    planner.plan(++number, 1, step);
    return step.items;
  }
  std::uint32_t planned(SequenceId id) {
    for (const PlanItem& item : plan())
      if (item.sequence == id) return item.num_draft;
    FAIL("not planned");
    return 0;
  }

  Costs costs;
  FairShares shares;
  StepPlanner planner;
  StepPlan step;
  std::uint64_t number = 0;
};

}  // namespace

TEST_CASE_METHOD(Drafts, "without an offer there is no draft, and an offer is for one step") {
  add(1);
  accept(1, 8, false);
  REQUIRE(planned(1) == 0);
  planner.advance(1, 1);
  planner.offer_draft(1, 4);
  planner.offer_draft(99, 4);  // removed meanwhile
  REQUIRE(planned(1) == 4);
  REQUIRE(step.load.num_tokens == 5);
  REQUIRE(step.load.num_outputs == 5);
  REQUIRE(step.loads[0] == step.load);
  planner.advance(1, 5);
  REQUIRE(planner.known(1) == 16);
  REQUIRE(planner.computed(1) == 15);
  REQUIRE(planned(1) == 0);
}

TEST_CASE_METHOD(Drafts, "drafts are as long as the sequence's acceptance is worth") {
  for (SequenceId id = 1; id <= 3; ++id) add(id);
  accept(1, 16, false);
  accept(2, 2, true);
  accept(3, 0, true);
  for (SequenceId id = 1; id <= 3; ++id) planner.offer_draft(id, 16);
  plan();
  CHECK(step.items[0].num_draft == 16);
  CHECK(step.items[1].num_draft >= 2);
  CHECK(step.items[1].num_draft <= 6);
  CHECK(step.items[2].num_draft == 0);
}

TEST_CASE("where each row costs as much as a step there are no drafts, however good they are") {
  Drafts at({.max_step_tokens = 64, .max_sequences = 8}, {.fixed = 0.0001, .token = 0.01});
  at.add(1);
  at.accept(1, 16, false);
  at.planner.offer_draft(1, 16);
  CHECK(at.planned(1) == 0);
}

TEST_CASE("where one row more begins another group of a kernel, that is learned, and no draft is worth it") {
  // Eight rows at once, whether or not all of them are there.
  const auto seconds = [](const StepLoad& load) { return 0.008 * ((load.num_tokens + 7) / 8); };
  for (const std::uint32_t streams : {8u, 6u}) {
    INFO(streams << " streams");
    Drafts at({.max_step_tokens = 64, .max_sequences = 8});
    for (SequenceId id = 1; id <= streams; ++id) {
      at.add(id, 10, 500, 9000);
      at.accept(id, 1, true);
    }
    std::uint32_t num_drafts = 0;
    for (int i = 0; i < 400; ++i) {
      for (SequenceId id = 1; id <= streams; ++id) at.planner.offer_draft(id, 1);
      at.plan();
      at.planner.charge(at.step, seconds(at.step.load));
      if (i >= 200) num_drafts += at.step.load.num_tokens - streams;
      for (const PlanItem& item : at.step.items) at.planner.advance(item.sequence, 1 + item.num_draft / 2);
    }
    if (streams == 8) CHECK(num_drafts <= 8);  // probes
    if (streams == 6) CHECK(num_drafts >= 350);
  }
}

TEST_CASE("many streams leave less room for drafts than one does") {
  std::uint32_t before = kMaxDraftTokens + 1;
  for (const std::uint32_t streams : {1u, 4u, 16u}) {
    Drafts at({.max_step_tokens = 512, .max_sequences = 64}, {.fixed = 0.02, .token = 0.002});
    for (SequenceId id = 1; id <= streams; ++id) {
      at.add(id);
      at.accept(id, 3, true);
      at.planner.offer_draft(id, 16);
    }
    at.plan();
    CHECK(at.step.items[0].num_draft < before);
    before = at.step.items[0].num_draft;
  }
  CHECK(before <= 2);
}

TEST_CASE_METHOD(Drafts, "a draft ends within the sequence's blocks, and before its last token") {
  add(1, 30, 1);
  add(2, 30, 9, 34);
  for (const SequenceId id : {1, 2}) {
    accept(id, 16, false);
    planner.offer_draft(id, 16);
  }
  plan();
  CHECK(step.items[0].num_draft == 2);  // positions 30 and 31
  CHECK(step.items[1].num_draft == 3);  // with the token after them 34 are known
  planner.advance(2, 4);
  CHECK(planner.known(2) == 34);
}

TEST_CASE("drafts stay within the tokens of a step, and leave half of the rest to chunks") {
  Drafts at({.max_step_tokens = 12, .max_sequences = 8});
  at.add(1);
  at.accept(1, 16, false);
  at.planner.offer_draft(1, 16);
  CHECK(at.planned(1) == 11);
  at.planner.advance(1, 1);
  at.planner.add({.sequence = 2, .rank = {0, 2}, .known = 100, .computed = 0, .num_blocks = 9, .max_known = 999});
  at.planner.offer_draft(1, 16);
  at.plan();
  CHECK(at.step.items[0].num_draft == 5);
  CHECK(at.step.items[1].num_tokens == 6);
}

TEST_CASE("a step with drafts stays within the stall budget where another sequence waits") {
  Drafts at({.max_step_tokens = 64, .max_sequences = 8, .max_stall_seconds = 0.033}, {.fixed = 0.02, .token = 0.0005});
  for (const SequenceId id : {1, 2}) {
    at.add(id);
    at.accept(id, 16, false);
    at.planner.offer_draft(id, 16);
  }
  at.plan();
  CHECK(at.step.load.num_tokens >= 18);
  CHECK(at.costs.of(at.step.load) < 0.0345);
}

TEST_CASE("no draft reaches a boundary of the snapshots") {
  Drafts at({.max_step_tokens = 64, .max_sequences = 8, .snapshot_rule = {.every = 32}});
  at.add(1, 26);
  at.accept(1, 16, false);
  at.planner.offer_draft(1, 16);
  CHECK(at.planned(1) <= 5);
}

TEST_CASE("where sequences have states, as many drafts are in a step as there are states left") {
  Drafts at({.max_step_tokens = 64, .max_sequences = 8, .max_open = 5});
  for (SequenceId id = 1; id <= 3; ++id) {
    at.add(id);
    at.accept(id, 16, false);
    at.planner.offer_draft(id, 4);
  }
  at.plan();
  CHECK(at.step.items[0].num_draft == 4);
  CHECK(at.step.items[1].num_draft == 4);
  CHECK(at.step.items[2].num_draft == 0);
}

TEST_CASE_METHOD(Drafts, "tokens that a rejected proposal leaves to compute again are decoded before any chunk") {
  add(1);
  accept(1, 16, false);
  planner.offer_draft(1, 4);
  REQUIRE(planned(1) == 4);
  planner.advance(1, 3, 9);  // the state went back to where it was
  REQUIRE(planner.known(1) == 13);
  REQUIRE(planner.computed(1) == 9);
  planner.add({.sequence = 2, .rank = {0, 0}, .known = 500, .computed = 0, .num_blocks = 90, .max_known = 999});
  plan();
  CHECK(step.items[0] == PlanItem{1, 4, 0, true, false, TenantId{1}});
  CHECK(step.items[1].sequence == 2);
}

TEST_CASE_METHOD(Drafts, "a suspect gets no draft, and a lost step's drafts are forgotten") {
  add(1);
  accept(1, 16, false);
  planner.offer_draft(1, 4);
  REQUIRE(planned(1) == 4);
  planner.abandon_step();
  planner.suspect(1, 10);
  planner.offer_draft(1, 4);
  REQUIRE(planned(1) == 0);
  planner.advance(1, 1);
  REQUIRE(planner.known(1) == 11);
}

TEST_CASE_METHOD(Drafts, "drafted rows are charged to their tenant") {
  add(1);
  add(2);
  for (const SequenceId id : {1, 2}) shares.begin(TenantId{static_cast<std::uint32_t>(id)});
  accept(1, 16, false);
  planner.offer_draft(1, 8);
  plan();
  REQUIRE(step.items[0].num_draft == 8);
  planner.charge(step, costs.of(step.load));
  CHECK(step.items[0].seconds > 4 * step.items[1].seconds);
  CHECK(step.items[0].seconds + step.items[1].seconds == Approx(costs.of(step.load)));
}

TEST_CASE_METHOD(Drafts, "a sequence with offers asks for the blocks of its next draft in time, up to its last token") {
  add(1, 20, 1);
  add(2, 20, 1);
  add(3, 20, 1, 34);
  for (const SequenceId id : {1, 3}) planner.offer_draft(id, 16);
  std::vector<BlockNeed> needs;
  planner.needs(needs);
  REQUIRE(needs == std::vector<BlockNeed>{{1, 1}, {3, 1}});
  planner.deny(1);
  REQUIRE_FALSE(planner.starved());  // it can decode
  REQUIRE_FALSE(planner.victim());
}

TEST_CASE("acceptance follows what was seen last, and begins with what is expected") {
  DraftAcceptance acceptance;
  CHECK(acceptance.rate(0.7) == Approx(0.7));
  for (int i = 0; i < 40; ++i) acceptance.observe(4, true);
  CHECK(acceptance.rate(0.7) == Approx(0.8).margin(0.02));
  for (int i = 0; i < 40; ++i) acceptance.observe(0, true);
  CHECK(acceptance.rate(0.7) < 0.2);
}

TEST_CASE_METHOD(Drafts,
                 "a draft model is asked from the first step on, for longer drafts the more of them are right") {
  const std::array<SequenceId, 1> one{1};
  add(1);
  const double pass = costs.fixed / 20;
  CHECK(planner.wanted_drafts(one, pass, 16) > 0);  // of which nothing is known
  planner.observe_draft(1, 0, true);
  CHECK(planner.wanted_drafts(one, pass, 16) > 0);  // one that was wrong says little
  accept(1, 1, true);
  const std::uint32_t of_half = planner.wanted_drafts(one, pass, 16);
  accept(1, 8, false);
  const std::uint32_t of_all = planner.wanted_drafts(one, pass, 16);
  CHECK(of_half > 0);
  CHECK(of_half < of_all);
  CHECK(of_all >= 8);
  CHECK(planner.wanted_drafts(one, pass, 3) == 3);
  CHECK(planner.wanted_drafts(one, 4 * costs.fixed, 16) == 0);  // slower than the model itself
  CHECK(planner.wanted_drafts({}, pass, 16) == 0);
}

TEST_CASE_METHOD(Drafts, "a draft model that is wrong is asked for one token now and then, ever more rarely") {
  const std::array<SequenceId, 1> one{1};
  const double pass = costs.fixed / 20;
  add(1);
  accept(1, 0, true);
  std::vector<std::uint32_t> waited;
  for (std::uint32_t steps = 1; waited.size() < 7; ++steps) {
    const std::uint32_t wanted = planner.wanted_drafts(one, pass, 16);
    REQUIRE(wanted <= 1);
    if (wanted == 0) continue;
    waited.push_back(steps);
    planner.observe_draft(1, 0, true);
    steps = 0;
  }
  CHECK(waited == std::vector<std::uint32_t>{4, 8, 16, 32, 64, 64, 64});
  // Once it is right it is asked again, and then soon after it was wrong.
  accept(1, 1, false);
  CHECK(planner.wanted_drafts(one, pass, 16) > 0);
  accept(1, 0, true, 60);
  std::uint32_t steps = 1;
  while (planner.wanted_drafts(one, pass, 16) == 0) ++steps;
  CHECK(steps == 4);
}

// Of steps of one row each, a row and the rest of the step cannot be told apart.
TEST_CASE("that rows are cheap is found out by verifying a proposal now and then") {
  for (const bool by_model : {false, true}) {
    Drafts at({.max_step_tokens = 64, .max_sequences = 8}, {.fixed = 0.01, .token = 0.01});
    at.costs = {.fixed = 0.0195, .token = 0.0005};  // a step of one row takes what it took
    const std::array<SequenceId, 1> one{1};
    at.add(1, 10, 4000, 100'000);
    std::uint32_t num_verified = 0, last_hundred = 0;
    for (int step = 0; step < 1500; ++step) {
      if (!by_model || at.planner.wanted_drafts(one, 0.001, 1) > 0) at.planner.offer_draft(1, 1);
      const std::uint32_t count = at.planned(1);
      at.planner.charge(at.step, at.costs.of(at.step.load));
      at.planner.advance(1, count + 1);
      if (count > 0) at.planner.observe_draft(1, 1, false);
      num_verified += count;
      if (step >= 1400) last_hundred += count;
    }
    INFO((by_model ? "by a model: " : "by its text: ") << num_verified);
    CHECK(last_hundred > 90);
  }
}

TEST_CASE("one sequence alone is drafted for however long its steps take, others wait at most half as long again") {
  for (const SequenceId streams : {1, 2}) {
    Drafts at({.max_step_tokens = 64, .max_sequences = 8, .max_stall_seconds = 0.1}, {.fixed = 0.2, .token = 0.02});
    for (SequenceId id = 1; id <= streams; ++id) {
      at.add(id);
      at.accept(id, 16, false);
      at.planner.offer_draft(id, 16);
    }
    at.plan();
    const double plain = at.costs.fixed + at.costs.token * static_cast<double>(streams);
    INFO(at.step.load.num_tokens << " rows");
    CHECK(at.step.load.num_tokens > streams + 2);
    if (streams == 1)
      CHECK(at.step.load.num_tokens == 17);
    else
      CHECK(at.costs.of(at.step.load) <= 1.52 * plain);
  }
}

TEST_CASE("what would not be verified is not drafted") {
  Drafts at({.max_step_tokens = 64, .max_sequences = 8}, {.fixed = 0.001, .token = 0.01});
  const std::array<SequenceId, 1> one{1};
  at.add(1);
  at.accept(1, 4, false);
  CHECK(at.planner.wanted_drafts(one, 0, 16) == 0);
  at.planner.offer_draft(1, 16);
  CHECK(at.planned(1) == 0);
}

TEST_CASE("an answer that is offered fills the step whatever its acceptance, or half of the rest beside chunks") {
  Drafts at({.max_step_tokens = 64, .max_sequences = 8});
  at.add(1);
  at.accept(1, 0, true);
  at.planner.offer_answer(1, 500);
  at.planner.offer_answer(99, 500);  // removed meanwhile
  CHECK(at.planned(1) == 63);
  CHECK(at.step.load.num_tokens == 64);
  CHECK(at.step.load.num_outputs == 64);
  CHECK(at.step.loads[0] == at.step.load);
  at.planner.advance(1, 64);
  CHECK(at.planner.known(1) == 74);
  at.planner.add({.sequence = 2, .rank = {0, 2}, .known = 500, .computed = 0, .num_blocks = 19, .max_known = 999});
  at.planner.offer_answer(1, 500);
  at.plan();
  CHECK(at.step.items[0].num_draft == 31);
  CHECK(at.step.items[1].num_tokens == 32);
  at.planner.advance(1, 5);  // the fifth was another one
  at.planner.advance(2, 0);
  CHECK(at.planned(1) == 0);
}

TEST_CASE("an answer that is offered ends within its blocks and before its last token, and asks for blocks in time") {
  Drafts at({.max_step_tokens = 64, .max_sequences = 8});
  at.add(1, 30, 1);
  at.add(2, 30, 9, 34);
  at.planner.offer_answer(1, 500);
  at.planner.offer_answer(2, 500);
  std::vector<BlockNeed> needs;
  at.planner.needs(needs);
  REQUIRE(needs.size() == 1);
  CHECK(needs[0] == BlockNeed{1, 4});  // 30 positions, and two steps of 64
  at.plan();
  CHECK(at.step.items[0].num_draft == 2);
  CHECK(at.step.items[1].num_draft == 3);
  // From its start on, as far as it is told.
  at.planner.add({.sequence = 3,
                  .rank = {0, 3},
                  .known = 20,
                  .computed = 0,
                  .num_blocks = 1,
                  .max_known = 999,
                  .answer_tokens = 60});
  needs.clear();
  at.planner.needs(needs);
  CHECK(std::ranges::find(needs, BlockNeed{3, 2}) != needs.end());
}

TEST_CASE("an answer that is offered is cut to max_stall where another sequence waits for its tokens, and only there") {
  Drafts at({.max_step_tokens = 512, .max_sequences = 8, .max_stall_seconds = 0.05});
  at.add(1);
  at.planner.offer_answer(1, 500);
  CHECK(at.planned(1) == 500);
  at.planner.advance(1, 1);
  at.add(2);
  at.planner.offer_answer(1, 500);
  at.plan();
  CHECK(at.step.items[0].num_draft > 30);
  CHECK(at.costs.of(at.step.load) < 0.055);
  at.planner.advance(1, 1);
  at.planner.advance(2, 1);
  at.planner.offer_answer(1, 300);  // none of two such answers waits for a token
  at.planner.offer_answer(2, 300);
  at.plan();
  CHECK(at.step.items[0].num_draft == 300);
  CHECK(at.step.items[1].num_draft == 210);
}

TEST_CASE("an answer that is offered ends before a snapshot, takes a state, and what it left behind is a chunk") {
  Drafts at({.max_step_tokens = 512, .max_sequences = 8, .snapshot_rule = {.every = 128}, .max_open = 3});
  at.add(1);
  at.add(2);
  at.planner.offer_answer(1, 500);
  at.planner.offer_answer(2, 500);
  at.plan();
  CHECK(at.step.items[0].num_draft == 117);  // up to position 127
  CHECK(at.step.items[1].num_draft == 0);    // there is one more state
  at.planner.advance(1, 101, 10);            // the 101st was another one: back to the state before
  at.planner.advance(2, 1);
  CHECK_FALSE(at.planner.decodes(1));
  at.planner.offer_answer(1, 500);
  at.plan();
  const auto chunk = std::ranges::find(at.step.items, SequenceId{1}, &PlanItem::sequence);
  REQUIRE(chunk != at.step.items.end());
  CHECK(chunk->num_tokens == 101);
  CHECK(chunk->num_draft == 0);
  CHECK(chunk->wants_logits);
}
