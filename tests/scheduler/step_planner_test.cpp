#include "scheduler/step_planner.h"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::scheduler;

namespace {

constexpr std::uint32_t kNoLimit = 100000;

struct Fixture {
  FairShares shares;
  StepPlanner planner{{.max_step_tokens = 40, .max_sequences = 4}, shares};
  StepPlan step;
  std::uint64_t number = 0;

  // A sequence with blocks for all it will compute, unless told otherwise; its id is its arrival.
  void add(SequenceId id, std::uint32_t known, std::uint32_t computed = 0, std::uint32_t num_blocks = 1000,
           std::int32_t priority = 0) {
    planner.add({.sequence = id,
                 .rank = {priority, id},
                 .known = known,
                 .computed = computed,
                 .num_blocks = num_blocks,
                 .max_known = kNoLimit});
  }
  const std::vector<PlanItem>& plan() {
    planner.plan(++number, 1, step);
    return step.items;
  }
  // The running step ends, and every row that could sample did.
  void finish() {
    for (const PlanItem& item : step.items) planner.advance(item.sequence, item.wants_logits ? 1 : 0);
    step.items.clear();
  }
  std::vector<BlockNeed> needs() {
    std::vector<BlockNeed> out;
    planner.needs(out);
    return out;
  }
};

using Items = std::vector<PlanItem>;
using Needs = std::vector<BlockNeed>;

}  // namespace

TEST_CASE("a step's load has the logits that are wanted of a prompt's tokens") {
  FairShares shares;
  StepPlanner planner{{.max_step_tokens = 100, .max_sequences = 4}, shares};
  planner.add({.sequence = 1, .rank = {}, .known = 150, .num_blocks = 10, .max_known = kNoLimit, .num_scored = 149});
  StepPlan step;
  planner.plan(1, 1, step);
  CHECK(step.load.num_outputs == 100);
  planner.advance(1, 0);
  planner.plan(2, 1, step);
  CHECK(step.load.num_outputs == 50);  // 49, and the last one's, which is sampled
  planner.advance(1, 1);
  planner.plan(3, 1, step);
  CHECK(step.load.num_outputs == 1);
}

TEST_CASE("tokens of a row that are skipped are charged to nobody, and the others pay for what is computed") {
  FairShares shares;
  StepPlanner planner{{.max_step_tokens = 100, .max_sequences = 4}, shares};
  for (const SequenceId id : {1u, 2u})
    planner.add({.sequence = id,
                 .rank = {0, id},
                 .known = 40,
                 .computed = 0,
                 .num_blocks = 10,
                 .max_known = kNoLimit,
                 .tenant = TenantId{id}});
  StepPlan step;
  planner.plan(1, 1, step);
  REQUIRE(step.items.size() == 2);
  step.skip(0, 0, 30);
  CHECK(step.items[0].num_tokens == 10);
  CHECK(step.load.num_tokens == 50);
  planner.charge(step, 1);
  CHECK(step.items[0].seconds == Approx(0.2));
  CHECK(shares.served(TenantId{2}) == Approx(0.8));
  step.skip(0, 30, 10);
  planner.charge(step, 1);
  CHECK(step.items[0].seconds == 0);
  CHECK(shares.served(TenantId{2}) == Approx(1.8));
  step.skip(1, 0, 40);
  planner.charge(step, 1, StepEnd::with_copies);
  CHECK(shares.served(TenantId{2}) == Approx(1.8));
}

// --- steps ---

TEST_CASE_METHOD(Fixture, "a long prefill never stalls a running decode") {
  add(1, 3);
  REQUIRE(plan() == Items{{1, 3, 0, true}});
  finish();
  add(2, 100);
  REQUIRE(plan() == Items{{1, 1, 0, true}, {2, 39, 0, false}});  // one decode, and a chunk of the tokens left
  finish();
  REQUIRE(plan() == Items{{1, 1, 0, true}, {2, 39, 0, false}});
  finish();
  REQUIRE(plan() == Items{{1, 1, 0, true}, {2, 22, 0, true}});  // the last chunk samples
  finish();
  REQUIRE(plan() == Items{{1, 1, 0, true}, {2, 1, 0, true}});
  REQUIRE(step.step == 5);
  REQUIRE(step.epoch == 1);
}

TEST_CASE_METHOD(Fixture, "a prefix hit starts behind the cached tokens") {
  add(1, 70, 64);
  REQUIRE(plan() == Items{{1, 6, 0, true}});
  finish();
  REQUIRE(planner.computed(1) == 70);
  REQUIRE(planner.known(1) == 71);
}

TEST_CASE_METHOD(Fixture, "a fork begins inside a block, and reports that block when it is full") {
  add(1, 70, 69, 3);
  REQUIRE(plan() == Items{{1, 1, 0, true}});
  finish();
  REQUIRE(planner.newly_full(1).num_blocks == 0);
  while (planner.computed(1) < 96) {
    REQUIRE(plan() == Items{{1, 1, 0, true}});
    finish();
  }
  REQUIRE(planner.newly_full(1) == BlockRange{2, 1});
}

TEST_CASE_METHOD(Fixture, "chunks go to the oldest first, and priority beats arrival") {
  add(1, 30);
  add(2, 30);
  add(3, 30, 0, 1000, /*priority=*/-1);
  REQUIRE(plan() == Items{{3, 30, 0, true}, {1, 10, 0, false}});
}

TEST_CASE_METHOD(Fixture, "the rows of a step are bounded by max_sequences") {
  for (SequenceId id = 1; id <= 4; ++id) add(id, 1);
  REQUIRE_FALSE(planner.has_room());
  planner.park(4);
  REQUIRE(planner.has_room());
  add(5, 1);
  planner.unpark(4);
  REQUIRE(plan().size() == 4);
  REQUIRE(step.items.back().sequence == 4);  // the youngest gets no row
}

TEST_CASE("with all states in use a parked sequence is preempted for a new one; a running one is not") {
  FairShares shares;
  StepPlanner planner({.max_step_tokens = 40, .max_sequences = 4, .max_open = 2}, shares);
  const auto add = [&](SequenceId id) {
    planner.add({.sequence = id, .rank = {0, id}, .known = 1, .computed = 0, .num_blocks = 9, .max_known = 99});
  };
  add(1);
  REQUIRE_FALSE(planner.is_full());
  add(2);
  REQUIRE(planner.is_full());
  REQUIRE_FALSE(planner.can_add());
  REQUIRE_FALSE(planner.has_room());
  StepPlan plan;
  planner.plan(1, 1, plan);
  planner.park(2);
  REQUIRE_FALSE(planner.has_room());  // its state is being computed
  for (const PlanItem& item : plan.items) planner.advance(item.sequence, 1);
  REQUIRE(planner.is_full());
  REQUIRE(planner.has_room());
  REQUIRE(planner.parked_victim() == 2);
  planner.park(1);
  REQUIRE(planner.parked_victim() == 2);  // the younger one
  planner.remove(2);
  REQUIRE_FALSE(planner.is_full());
  add(3);
  planner.unpark(1);
  REQUIRE_FALSE(planner.has_room());
  REQUIRE_FALSE(planner.parked_victim());
}

TEST_CASE("decodes that fill the step leave one token for the oldest, if it is prefilling") {
  FairShares shares;
  StepPlanner planner({.max_step_tokens = 2, .max_sequences = 4}, shares);
  StepPlan plan;
  planner.add({.sequence = 2, .rank = {0, 2}, .known = 1, .computed = 0, .num_blocks = 9, .max_known = 99});
  planner.add({.sequence = 3, .rank = {0, 3}, .known = 1, .computed = 0, .num_blocks = 9, .max_known = 99});
  planner.plan(1, 1, plan);
  REQUIRE(plan.items == Items{{2, 1, 0, true}, {3, 1, 0, true}});
  for (const PlanItem& item : plan.items) planner.advance(item.sequence, 1);
  planner.add({.sequence = 1, .rank = {0, 1}, .known = 9, .computed = 0, .num_blocks = 9, .max_known = 99});
  planner.plan(2, 1, plan);
  REQUIRE(plan.items == Items{{2, 1, 0, true}, {1, 1, 0, false}});
}

TEST_CASE_METHOD(Fixture, "a sequence in a running step is not planned again until it is advanced") {
  add(1, 3);
  plan();
  add(2, 5);
  StepPlan second;
  planner.plan(2, 1, second);
  REQUIRE(second.items == Items{{2, 5, 0, true}});
  planner.plan(3, 1, second);
  REQUIRE(second.items.empty());
}

TEST_CASE_METHOD(Fixture, "a lost step counts as never planned") {
  add(1, 50);
  plan();
  planner.abandon_step();
  REQUIRE(plan() == Items{{1, 40, 0, false}});
}

TEST_CASE_METHOD(Fixture, "a suspect is computed alone and first until it is past the tokens of the failed step") {
  add(1, 5);
  add(2, 60);
  add(3, 4);
  REQUIRE(plan() == std::vector<PlanItem>{{1, 5, 0, true}, {2, 35, 0, false}});
  planner.abandon_step();
  planner.suspect(1, 5);
  planner.suspect(2, 35);
  planner.suspect(99, 5);  // removed meanwhile
  REQUIRE(plan() == std::vector<PlanItem>{{1, 5, 0, true}});
  planner.advance(1, 1);
  REQUIRE(plan() == std::vector<PlanItem>{{2, 40, 0, false}});
  planner.advance(2, 0);
  REQUIRE(plan() == std::vector<PlanItem>{{1, 1, 0, true}, {2, 20, 0, true}, {3, 4, 0, true}});
}

TEST_CASE_METHOD(Fixture, "a suspect that cannot run does not delay the others") {
  add(1, 40, 0, 0);
  add(2, 5);
  planner.suspect(1, 40);
  REQUIRE(plan() == std::vector<PlanItem>{{2, 5, 0, true}});
}

TEST_CASE_METHOD(Fixture, "the result of a sequence that was removed meanwhile is ignored") {
  add(1, 3);
  plan();
  planner.remove(1);
  planner.remove(1);
  planner.advance(1, 1);
  planner.grant(1, 1);
  planner.deny(1);
  planner.inherit(1, Rank{0, 0});
  REQUIRE_FALSE(planner.contains(1));
  REQUIRE(plan().empty());
}

TEST_CASE_METHOD(Fixture, "blocks are reported full once, those from the cache never") {
  add(1, 70, 32);
  REQUIRE(planner.newly_full(1).num_blocks == 0);
  plan();
  finish();
  REQUIRE(planner.newly_full(1) == BlockRange{1, 1});
  REQUIRE(planner.newly_full(1).num_blocks == 0);
  for (int i = 0; i < 26; ++i) {
    plan();
    finish();
  }
  REQUIRE(planner.computed(1) == 96);
  REQUIRE(planner.newly_full(1) == BlockRange{2, 1});
}

// --- snapshots ---

TEST_CASE("a row ends at each snapshot boundary, in a prompt and in generated tokens") {
  FairShares shares;
  StepPlanner planner({.max_step_tokens = 100, .max_sequences = 4, .snapshot_rule = {.every = 128}}, shares);
  StepPlan step;
  const auto next = [&] {
    planner.plan(1, 1, step);
    for (const PlanItem& item : step.items) planner.advance(item.sequence, item.wants_logits ? 1 : 0);
    return step.items;
  };
  planner.add({.sequence = 1, .rank = {0, 1}, .known = 200, .computed = 0, .num_blocks = 99, .max_known = 999});
  REQUIRE(next() == Items{{1, 100, 0, false}});
  REQUIRE(next() == Items{{1, 28, 0, false, true}});  // 128
  REQUIRE(next() == Items{{1, 64, 0, false, true}});  // 192, before the last token
  REQUIRE(next() == Items{{1, 8, 0, true}});
  for (int i = 0; i < 55; ++i) REQUIRE(next() == Items{{1, 1, 0, true}});
  REQUIRE(next() == Items{{1, 1, 0, true, true}});
  REQUIRE(planner.computed(1) == 256);

  planner.add({.sequence = 2, .rank = {0, 2}, .known = 300, .computed = 0, .num_blocks = 2, .max_known = 999});
  REQUIRE(next() == Items{{1, 1, 0, true}, {2, 64, 0, false}});  // its blocks end before the first boundary
}

TEST_CASE("initial_blocks() is at most the size of the smallest cache group") {
  FairShares shares;
  const StepPlanner planner({.max_step_tokens = 512, .max_sequences = 4, .max_initial_blocks = 3}, shares);
  REQUIRE(planner.initial_blocks(40) == 2);
  REQUIRE(planner.initial_blocks(400) == 3);
}

// --- blocks ---

TEST_CASE_METHOD(Fixture, "a chunk ends where the blocks end") {
  add(1, 100, 0, 1);
  REQUIRE(plan() == Items{{1, 32, 0, false}});
  finish();
  REQUIRE(plan().empty());  // no row without a block for one token
  REQUIRE(needs() == Needs{{1, 3}});
  planner.grant(1, 1);
  REQUIRE(plan() == Items{{1, 32, 0, false}});
}

TEST_CASE_METHOD(Fixture, "the first blocks are those of the first step") {
  REQUIRE(planner.initial_blocks(1) == 1);
  REQUIRE(planner.initial_blocks(33) == 2);
  REQUIRE(planner.initial_blocks(100000) == 2);  // of max_step_tokens
}

TEST_CASE_METHOD(Fixture, "a decode asks for its next block while there is still a slot left") {
  add(1, 30, 0, 1);
  REQUIRE(needs().empty());
  plan();
  REQUIRE(needs().empty());  // 31 will be known
  finish();
  plan();
  REQUIRE(needs() == Needs{{1, 1}});  // 32 will be known, and perhaps 33 before the answer is here
  REQUIRE(needs().empty());           // listed once
  finish();
  REQUIRE(plan().size() == 1);
  finish();
  REQUIRE(plan().empty());
  planner.grant(1, 1);
  REQUIRE(plan().size() == 1);
}

TEST_CASE_METHOD(Fixture, "a prefill asks for two steps ahead") {
  add(1, 1000, 0, 2);
  REQUIRE(needs() == Needs{{1, 1}});  // 80 tokens
  planner.grant(1, 1);
  plan();
  REQUIRE(needs() == Needs{{1, 1}});  // 120
}

TEST_CASE_METHOD(Fixture, "no block is asked for that only a sequence's last token would need") {
  planner.add({.sequence = 1, .rank = {0, 1}, .known = 32, .computed = 0, .num_blocks = 1, .max_known = 33});
  REQUIRE(needs().empty());
  plan();
  REQUIRE(needs().empty());
}

TEST_CASE_METHOD(Fixture,
                 "a denied need is listed again once blocks were given back, for no more than were available") {
  add(1, 500, 0, 1);
  REQUIRE(needs() == Needs{{1, 2}});
  planner.deny(1, 1);
  REQUIRE(needs() == Needs{{1, 1}});
  planner.deny(1, 0);
  plan();
  finish();
  REQUIRE(needs().empty());  // the end of a step alone frees no blocks
  planner.retry_denied();
  REQUIRE(needs() == Needs{{1, 1}});
}

TEST_CASE_METHOD(Fixture, "blocks given back before a denial arrived make the need be listed again") {
  add(1, 100, 0, 1);
  needs();
  planner.retry_denied();
  planner.deny(1);
  REQUIRE(needs().size() == 1);
}

TEST_CASE_METHOD(Fixture, "while an older sequence starves no younger one asks") {
  add(1, 33, 0, 0);
  add(2, 33, 0, 0);
  REQUIRE(needs().size() == 2);
  planner.deny(1);
  planner.deny(2);
  REQUIRE(planner.starved());
  planner.retry_denied();
  REQUIRE(needs() == Needs{{1, 1}});
  planner.grant(1, 1);
  REQUIRE_FALSE(plan().empty());
  REQUIRE(needs() == Needs{{1, 1}, {2, 1}});  // 1 needs its second block, but is not starved
}

// --- preemption ---

TEST_CASE_METHOD(Fixture, "the youngest is preempted for an older one, never an older one for a younger") {
  add(1, 33, 0, 0);
  add(2, 33, 0, 1);
  add(3, 33, 0, 1);
  REQUIRE_FALSE(planner.victim().has_value());
  needs();
  REQUIRE_FALSE(planner.victim().has_value());  // not answered yet
  planner.deny(1);
  REQUIRE(planner.victim() == 3u);
  planner.remove(3);
  REQUIRE(needs() == Needs{{1, 1}});
  REQUIRE_FALSE(planner.victim().has_value());  // it may have been enough
  planner.deny(1);
  REQUIRE(planner.victim() == 2u);
  planner.remove(2);
  planner.retry_denied();
  needs();
  planner.deny(1);
  REQUIRE_FALSE(planner.victim().has_value());
}

TEST_CASE_METHOD(Fixture, "without a younger sequence there is no victim") {
  add(1, 33, 0, 1);
  add(2, 33, 0, 0);
  needs();
  planner.deny(2);
  REQUIRE(planner.starved());
  REQUIRE_FALSE(planner.victim().has_value());
  REQUIRE_FALSE(planner.victim_for({.arrival = 9}).has_value());
  REQUIRE(planner.victim_for({.arrival = 0}) == 1u);
}

TEST_CASE_METHOD(Fixture, "a sequence in a running step is not preempted") {
  add(1, 33, 0, 0);
  add(2, 3, 0, 1);
  needs();
  planner.deny(1);
  plan();
  REQUIRE_FALSE(planner.victim().has_value());
  finish();
  REQUIRE(planner.victim() == 2u);
}

TEST_CASE_METHOD(Fixture, "parked sequences are preempted first, even for a younger one") {
  add(1, 33, 0, 1);
  add(2, 33, 0, 0);
  add(3, 33, 0, 1);
  planner.park(1);
  planner.park(1);
  REQUIRE(planner.num_parked() == 1);
  REQUIRE(planner.num_running() == 2);
  needs();
  planner.deny(2);
  REQUIRE(planner.victim() == 1u);
}

TEST_CASE_METHOD(Fixture, "a parked sequence computes and asks for nothing") {
  add(1, 33, 0, 1);
  planner.park(1);
  REQUIRE(plan().empty());
  REQUIRE(needs().empty());
  planner.unpark(1);
  REQUIRE(plan().size() == 1);
}

TEST_CASE_METHOD(Fixture, "a leader has its best follower's rank for as long as it has one") {
  add(1, 60);
  add(2, 60);
  planner.inherit(2, Rank{-1, 7});
  REQUIRE(plan() == Items{{2, 40, 0, false}});
  finish();
  planner.inherit(2, Rank{5, 7});  // not better than its own
  REQUIRE(plan()[0].sequence == 1);
  finish();
  planner.inherit(2, Rank{-1, 7});
  planner.inherit(2, std::nullopt);
  REQUIRE(plan()[0].sequence == 1);
}

// --- tenants ---

namespace {

constexpr TenantId kAnn{1}, kBob{2};

struct TenantFixture : Fixture {
  // One that decodes, of this tenant.
  void add_of(TenantId tenant, SequenceId id, std::int32_t priority = 0) {
    planner.add({.sequence = id,
                 .rank = {priority, id},
                 .known = 20,
                 .computed = 19,
                 .num_blocks = 1000,
                 .max_known = kNoLimit,
                 .tenant = tenant});
  }
  std::vector<SequenceId> planned() {
    std::vector<SequenceId> ids;
    for (const PlanItem& item : plan()) ids.push_back(item.sequence);
    finish();
    return ids;
  }
  static Demand waiting(TenantId tenant, std::uint64_t arrival, std::int32_t priority = 0) {
    return {.tenant = tenant, .priority = priority, .arrival = arrival};
  }
};

using Ids = std::vector<SequenceId>;

}  // namespace

TEST_CASE_METHOD(TenantFixture, "each tenant's first sequence is older than any tenant's second") {
  add_of(kAnn, 1);
  add_of(kAnn, 2);
  add_of(kAnn, 3);
  add_of(kBob, 4);
  CHECK(planned() == Ids{1, 4, 2, 3});
  CHECK(planner.victim_for(waiting(kBob, 5)) == 3u);  // level 1, younger than 2
  CHECK_FALSE(planner.victim_for(waiting(kAnn, 5)));
  planner.remove(1);
  CHECK(planned() == Ids{2, 4, 3});
  planner.park(2);
  CHECK(planned() == Ids{3, 4});
  planner.inherit(3, Rank{-7, 9});  // orders Ann's sequences only
  planner.unpark(2);
  CHECK(planned() == Ids{4, 3, 2});
}

TEST_CASE_METHOD(TenantFixture, "a tenant below its share of a full batch gets a place, and only then") {
  for (SequenceId id = 1; id <= 4; ++id) add_of(kAnn, id);
  CHECK_FALSE(planner.place_for(waiting(kAnn, 9)));
  REQUIRE(planner.place_for(waiting(kBob, 9)) == 4u);
  planner.remove(4);
  add_of(kBob, 9);
  REQUIRE(planner.place_for(waiting(kBob, 10)) == 3u);
  planner.remove(3);
  add_of(kBob, 10);
  CHECK_FALSE(planner.place_for(waiting(kBob, 11)));
  CHECK_FALSE(planner.place_for(waiting(kAnn, 3)));
  shares.charge(kAnn, 10);
  CHECK_FALSE(planner.place_for(waiting(kBob, 11)));
  CHECK(planner.place_for(waiting(TenantId{3}, 12)) == 10u);
}

TEST_CASE_METHOD(TenantFixture, "while a step is running, it is known which place will be given up") {
  for (SequenceId id = 1; id <= 4; ++id) add_of(kAnn, id);
  plan();
  CHECK(planner.place_for(waiting(kBob, 9)) == 4u);
  CHECK_FALSE(planner.place_for(waiting(kAnn, 9)));
  CHECK_FALSE(planner.victim_for(waiting(kBob, 9)));  // none of a running step
  finish();
  CHECK(planner.place_for(waiting(kBob, 9)) == 4u);
}

TEST_CASE_METHOD(TenantFixture, "with more tenants than places the one served the most gives up its own") {
  for (std::uint32_t i = 1; i <= 4; ++i) add_of(TenantId{i}, i);
  shares.charge(TenantId{3}, 0.4);
  CHECK_FALSE(planner.place_for(waiting(TenantId{5}, 9)));
  shares.charge(TenantId{3}, 0.2);
  shares.charge(TenantId{2}, 0.7);
  CHECK(planner.place_for(waiting(TenantId{5}, 9)) == 2u);
  shares.charge(TenantId{5}, 0.3);
  CHECK_FALSE(planner.place_for(waiting(TenantId{5}, 9)));
}

TEST_CASE_METHOD(TenantFixture, "a better priority takes a place of its own tenant") {
  add_of(kAnn, 1);
  add_of(kAnn, 2, /*priority=*/3);
  add_of(kBob, 3, /*priority=*/9);
  add_of(kBob, 4, /*priority=*/9);
  CHECK(planner.place_for(waiting(kAnn, 9, -1)) == 4u);  // it would be Ann's first: Bob's second is above it
  planner.remove(4);
  add_of(TenantId{3}, 4, /*priority=*/9);
  CHECK(planner.place_for(waiting(kAnn, 9, -1)) == 2u);
  CHECK_FALSE(planner.place_for(waiting(kAnn, 9, 3)));
  CHECK_FALSE(planner.place_for(waiting(TenantId{4}, 9, -99)) == 3u);
}

TEST_CASE_METHOD(TenantFixture, "a tenant that was served less has steps of its own until it has caught up") {
  add_of(kAnn, 1);
  add_of(kAnn, 2);
  add_of(kBob, 3);
  shares.begin(kAnn);
  shares.begin(kBob);
  const auto run = [&] {
    plan();
    const std::size_t num_rows = step.items.size();
    planner.charge(step, 0.125 * static_cast<double>(num_rows));  // exact sums
    finish();
    return num_rows;
  };
  int steps_of_ann = 0;
  for (int i = 0; i < 100; ++i) steps_of_ann += run() == 3;
  CHECK(shares.served(kAnn) - shares.served(kBob) <= 3 * shares.allowance());
  CHECK(shares.served(kBob) - shares.served(kAnn) <= 3 * shares.allowance());
  CHECK(steps_of_ann < 60);
  CHECK(steps_of_ann > 40);
}

TEST_CASE_METHOD(TenantFixture, "what a row took is charged also when its sequence has ended") {
  add_of(kAnn, 1);
  add_of(kBob, 2);
  plan();
  planner.remove(2);
  planner.charge(step, 3);
  CHECK(shares.served(kAnn) == 1.5);
  CHECK(shares.served(kBob) == 1.5);
}

TEST_CASE("prompts with a deadline are computed before their tenant's others, but not for ever") {
  FairShares shares;
  StepPlanner planner({.max_step_tokens = 40, .max_sequences = 4}, shares);
  const auto add = [&](SequenceId id, std::uint32_t tenant, std::optional<double> due) {
    shares.begin(TenantId{tenant});
    planner.add({.sequence = id,
                 .rank = {0, id},
                 .known = 2000,
                 .num_blocks = 100,
                 .max_known = 3000,
                 .tenant = TenantId{tenant},
                 .due_seconds = due});
  };
  add(1, 1, std::nullopt);
  add(2, 2, std::nullopt);
  add(3, 1, 9);
  add(4, 1, 5);
  StepPlan plan;
  std::vector<SequenceId> order;
  for (std::uint64_t step = 1; step <= 40; ++step) {
    planner.plan(step, 1, plan);
    REQUIRE(plan.items.size() == 1);
    order.push_back(plan.items[0].sequence);
    planner.advance(order.back(), 0);
  }
  CHECK(std::ranges::count(order, SequenceId{1}) == 1);  // after 32 steps
  CHECK(order[32] == 1);
  CHECK(std::ranges::count(order, SequenceId{4}) == 39);
  CHECK(planner.place_for({.tenant = TenantId{3}, .arrival = 9}) == SequenceId{1});  // not one with a deadline
}

TEST_CASE("a step is charged by what its rows cost") {
  FairShares shares;
  StepPlanner planner({.max_step_tokens = 512, .max_sequences = 4}, shares);
  const auto seconds = [](const StepLoad& load) { return 0.01 + 0.001 * load.num_tokens + 1e-5 * load.num_attended; };
  for (std::uint32_t context = 100; context <= 3200; context *= 2)
    for (std::uint32_t rows = 1; rows <= 4; ++rows) {
      StepPlan learned;
      for (std::uint32_t row = 0; row < rows; ++row) learned.load.add_row(context, 1, true);
      for (int i = 0; i < 20; ++i) planner.charge(learned, seconds(learned.load));
    }
  for (const SequenceId id : {1, 2}) {
    const auto tenant = TenantId{static_cast<std::uint32_t>(id)};
    shares.begin(tenant);
    const std::uint32_t known = id == 1 ? 100 : 3200;
    planner.add({.sequence = id,
                 .rank = {0, id},
                 .known = known,
                 .computed = known - 1,
                 .num_blocks = 110,
                 .max_known = 3500,
                 .tenant = tenant});
  }
  StepPlan plan;
  planner.plan(1, 1, plan);
  REQUIRE(plan.items.size() == 2);
  const double took = seconds(plan.load);
  planner.charge(plan, took);
  const double with_short = shares.served(TenantId{1}), with_long = shares.served(TenantId{2});
  CHECK(with_short + with_long == Approx(took));
  CHECK(with_long - with_short == Approx(3100 * 1e-5).epsilon(0.15));
}

// --- floors and ceilings ---

TEST_CASE("a sequence within its tenant's floor is older than all that are not, and recalls their blocks") {
  FairShares shares;
  StepPlanner planner({64, 8}, shares);
  planner.add({.sequence = 1, .rank = {0, 1}, .known = 60, .num_blocks = 2, .max_known = 100, .tenant = TenantId{1}});
  planner.add({.sequence = 2, .rank = {0, 2}, .known = 60, .num_blocks = 2, .max_known = 100, .tenant = TenantId{1}});
  const auto kept = [](std::uint32_t floor) {
    Demand demand{.tenant = TenantId{2}, .arrival = 3, .prompt_tokens = 60};
    demand.limits.min_kv_blocks = floor;
    return demand;
  };
  REQUIRE(planner.victim_for(kept(0)) == 2u);  // younger than the first of tenant 1
  REQUIRE(planner.victim_for(kept(2)) == 2u);
  planner.remove(2);
  REQUIRE_FALSE(planner.victim_for(kept(0)));
  REQUIRE_FALSE(planner.victim_for(kept(1)));  // 60 tokens and the next one need two blocks
  REQUIRE(planner.victim_for(kept(2)) == 1u);
  const Demand other{.tenant = TenantId{3}, .arrival = 2, .prompt_tokens = 60};
  REQUIRE(planner.is_older(other, kept(1)));
  REQUIRE(planner.is_older(kept(2), other));
  REQUIRE(planner.outranks(kept(2), other));
  // What ranks before it in its tenant uses the floor up.
  planner.add({.sequence = 3,
               .rank = {0, 0},
               .known = 40,
               .num_blocks = 2,
               .max_known = 100,
               .tenant = TenantId{2},
               .floor = 3});
  REQUIRE_FALSE(planner.victim_for(kept(3)));
  REQUIRE(planner.victim_for(kept(4)) == 1u);
}

TEST_CASE("a sequence that grows beyond its tenant's floor gives way like any other") {
  FairShares shares;
  StepPlanner planner({64, 8}, shares);
  planner.add({.sequence = 1,
               .rank = {0, 1},
               .known = 30,
               .computed = 29,
               .num_blocks = 1,
               .max_known = 100,
               .tenant = TenantId{1}});
  planner.add({.sequence = 2,
               .rank = {0, 2},
               .known = 31,
               .computed = 30,
               .num_blocks = 1,
               .max_known = 100,
               .tenant = TenantId{2},
               .floor = 1});
  const Demand waiting{.tenant = TenantId{3}, .arrival = 0, .prompt_tokens = 1};
  REQUIRE(planner.victim_for(waiting) == 1u);
  StepPlan plan;
  planner.plan(1, 1, plan);
  planner.advance(1, 1);
  planner.advance(2, 1);  // 32 tokens and the next one need two blocks
  REQUIRE(planner.victim_for(waiting) == 2u);
}

TEST_CASE("a sequence at its tenant's ceiling preempts its own tenant's only, and others get blocks meanwhile") {
  FairShares shares;
  StepPlanner planner({64, 8}, shares);
  const auto add = [&](SequenceId sequence, TenantId tenant) {
    planner.add({.sequence = sequence,
                 .rank = {0, sequence},
                 .known = 33,
                 .computed = 32,
                 .num_blocks = 1,
                 .max_known = 100,
                 .tenant = tenant});
  };
  add(1, TenantId{1});
  add(2, TenantId{1});
  add(3, TenantId{2});
  add(4, TenantId{2});
  std::vector<BlockNeed> needs;
  planner.needs(needs);
  REQUIRE(needs.size() == 4);
  planner.deny(1, 0, /*at_ceiling=*/true);
  planner.deny(2, 0, true);
  planner.deny(3);
  planner.deny(4);
  REQUIRE(planner.starved_at_ceiling(TenantId{1}));
  REQUIRE_FALSE(planner.starved_at_ceiling(TenantId{2}));
  REQUIRE(planner.victim() == 2u);  // not 4, which is the youngest
  planner.remove(2);
  needs.clear();
  planner.needs(needs);
  REQUIRE(needs == std::vector<BlockNeed>{{1, 1}, {3, 1}});
  planner.deny(1, 0, true);
  REQUIRE_FALSE(planner.victim());  // the answer to 3 is open
  planner.deny(3);
  REQUIRE(planner.victim() == 4u);  // for 3: its pool is short, and 1 has none to preempt
  planner.remove(4);
  needs.clear();
  planner.needs(needs);
  planner.grant(3, 1);
  REQUIRE_FALSE(planner.starved());
  REQUIRE(planner.starved_at_ceiling(TenantId{1}));
  const Demand of_one{.tenant = TenantId{1}, .arrival = 0, .prompt_tokens = 1};
  const Demand of_three{.tenant = TenantId{3}, .arrival = 0, .prompt_tokens = 1};
  REQUIRE(planner.victim_for(of_one, true) == 1u);
  REQUIRE_FALSE(planner.victim_for(of_three, true));
}

TEST_CASE("parked sequences within their tenant's floor are preempted last") {
  FairShares shares;
  StepPlanner planner({64, 8}, shares);
  planner.add({.sequence = 1, .rank = {0, 1}, .known = 31, .num_blocks = 1, .max_known = 99, .tenant = TenantId{1}});
  planner.add({.sequence = 2,
               .rank = {0, 2},
               .known = 31,
               .num_blocks = 1,
               .max_known = 99,
               .tenant = TenantId{2},
               .floor = 1});
  planner.add({.sequence = 3, .rank = {0, 3}, .known = 31, .num_blocks = 1, .max_known = 99, .tenant = TenantId{3}});
  planner.park(2);
  planner.park(3);
  const Demand waiting{.tenant = TenantId{4}, .arrival = 0, .prompt_tokens = 1};
  for (const SequenceId expected : {3, 1, 2}) {
    REQUIRE(planner.victim_for(waiting) == expected);
    planner.remove(expected);
  }
}
