// A Batch with a cache keeper and a worker of known step times: what its streams' receipts say.
#include "actors/batching/batch.h"

#include <catch2/catch.hpp>

#include "tests/actors/serving/batch_machine.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;
using test::BatchMachine;

constexpr TenantId kAlice{1}, kBert{2};

double compute_sum(const BatchMachine& machine) {
  double sum = 0;
  for (const UsageEntry& entry : machine.entries()) sum += entry.usage.compute_seconds;
  return sum;
}

}  // namespace

TEST_CASE("receipt: a request alone has all of each step, and the time between steps is stalled") {
  BatchMachine machine;
  const auto asked = machine.ask(kAlice, 40, 3);
  machine.wait(0.125);  // its first step is planned already
  REQUIRE(machine.step(1));
  REQUIRE(machine.step(0.5));
  REQUIRE(machine.step(0.5));
  REQUIRE_FALSE(machine.step(1));
  const Usage& usage = asked.sink->usage();
  CHECK(usage.compute_seconds == Approx(2));
  CHECK(usage.cpu_seconds == Approx(4));
  CHECK(usage.computed_tokens == 42);  // the last one is not computed
  CHECK(usage.stalled_seconds == Approx(0.125));
  CHECK(usage.block_seconds == Approx(2 * 2.125));
  CHECK(usage.tenant_share == Approx(1));
  CHECK(usage.prefill_seconds + usage.decode_seconds == Approx(2.125));
}

TEST_CASE("receipt: a step's time is divided among its rows by tokens, and the parts add up to what was charged") {
  BatchMachine machine;
  const auto ann = machine.ask(kAlice, 30, 4);
  REQUIRE(machine.step(1));  // Alice alone
  const auto bob = machine.ask(kBert, 3, 2);
  REQUIRE(machine.step(1));  // planned without Bert
  REQUIRE(machine.step(1));  // of 4 tokens, or Bert's 3 alone
  while (machine.step(1)) continue;
  CHECK(ann.sink->usage().computed_tokens == 33);
  CHECK(bob.sink->usage().computed_tokens == 4);
  CHECK(compute_sum(machine) == Approx(machine.charged()));
  CHECK(ann.sink->usage().tenant_share < 1);
  CHECK(bob.sink->usage().tenant_share > 0);
  CHECK(bob.sink->usage().tenant_share < 1);
}

TEST_CASE("receipt: time out of credit is parked, not stalled") {
  BatchMachine machine;
  const auto asked = machine.ask(kAlice, 10, 3, /*credit=*/1);
  REQUIRE(machine.step(1));
  REQUIRE_FALSE(machine.step(1));
  machine.wait(5);
  machine.credit(asked.id, 9);
  REQUIRE(machine.step(1));
  REQUIRE(machine.step(1));
  const Usage& usage = asked.sink->usage();
  CHECK(usage.parked_seconds == Approx(5));
  CHECK(usage.stalled_seconds == Approx(0).margin(1e-9));
  CHECK(usage.block_seconds == Approx(8));  // kept meanwhile
}

TEST_CASE("receipt: a preempted request waits for its place, and computes its tokens again") {
  BatchMachine machine(/*num_blocks=*/4);
  const auto old = machine.ask(kAlice, 31, 60);
  const auto young = machine.ask(kAlice, 31, 60);
  int steps = 0;
  while (machine.step(0.25)) ++steps;
  REQUIRE(old.sink->ends.size() == 1);
  REQUIRE(young.sink->ends.size() == 1);
  const Usage& usage = young.sink->usage();
  REQUIRE(usage.preemptions > 0);
  CHECK(usage.preempted_seconds > 1);
  CHECK(usage.computed_tokens > 90);
  CHECK(old.sink->usage().computed_tokens == 90);
  CHECK(old.sink->usage().preempted_seconds == 0);
  CHECK(compute_sum(machine) == Approx(machine.charged()));
  CHECK(usage.stalled_seconds == Approx(0).margin(1e-9));
  CHECK(usage.preempted_seconds + usage.queue_seconds < 0.25 * steps);
}

TEST_CASE("receipt: each of n answers has its own, and the first one that of the prompt") {
  BatchMachine machine;
  const auto asked = machine.ask(kAlice, 64, 4, 1000, /*num_choices=*/3);
  while (machine.step(1)) continue;
  REQUIRE(asked.sink->ends.size() == 3);
  CHECK(asked.sink->usage(0).computed_tokens == 64 + 3);
  CHECK(asked.sink->usage(0).cached_tokens == 0);
  for (const std::uint32_t choice : {1u, 2u}) {
    CHECK(asked.sink->usage(choice).cached_tokens == 63);
    CHECK(asked.sink->usage(choice).computed_tokens == 1 + 3);
  }
  CHECK(compute_sum(machine) == Approx(machine.charged()));
}

TEST_CASE("receipt: a step that failed is charged, and its tokens are not counted as computed") {
  BatchMachine machine;
  const auto ann = machine.ask(kAlice, 10, 2);
  machine.fail_step(3);
  while (machine.step(1)) continue;
  CHECK(ann.sink->usage().compute_seconds == Approx(machine.charged()));
  CHECK(ann.sink->usage().computed_tokens == 11);
  CHECK(ann.sink->usage().stalled_seconds == Approx(0).margin(1e-9));
}

TEST_CASE("receipt: the step in which a request was cancelled is charged to its tenant after its end") {
  BatchMachine machine;
  const auto ann = machine.ask(kAlice, 10, 5);
  REQUIRE(machine.step(1));
  machine.cancel(ann.id);
  CHECK(ann.sink->usage().compute_seconds == Approx(1));
  REQUIRE(machine.step(2));
  REQUIRE(machine.entries().size() == 2);
  CHECK(machine.entries()[0].outcome == Outcome::cancelled);
  CHECK_FALSE(machine.entries()[1].outcome);
  CHECK(machine.entries()[1].tenant.id == kAlice);
  CHECK(compute_sum(machine) == Approx(machine.charged()));
}

}  // namespace troupe::actors
