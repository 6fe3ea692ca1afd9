#include "actors/threads/compute_shares.h"

#include <catch2/catch.hpp>

#include <memory>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr TenantId kAnn{1}, kBob{2};

}  // namespace

TEST_CASE("a pass waits while a step runs and another tenant was served less") {
  ComputeShares shares;
  shares.begin(kAnn);
  CHECK_FALSE(shares.must_wait(kAnn));
  shares.charge(kAnn, 1);
  shares.begin(kBob);
  shares.charge(kAnn, 1);
  CHECK_FALSE(shares.must_wait(kAnn));  // no step runs: nothing would wake it
  {
    const auto lock = shares.lock();
    CHECK_FALSE(shares.decided(true));  // no pass waits
  }
  CHECK(shares.must_wait(kAnn));
  const auto lock = shares.lock();
  CHECK_FALSE(shares.decided(true));
  shares.shares().charge(kBob, 1);
  CHECK(shares.decided(true));
  CHECK_FALSE(shares.decided(true));  // told once
}

TEST_CASE("a pass that waits goes when steps end or the other tenant does") {
  ComputeShares shares;
  shares.begin(kAnn);
  shares.begin(kBob);
  shares.charge(kAnn, 1);
  {
    const auto lock = shares.lock();
    CHECK_FALSE(shares.decided(true));
  }
  REQUIRE(shares.must_wait(kAnn));
  {
    const auto lock = shares.lock();
    CHECK(shares.decided(false));
    CHECK_FALSE(shares.decided(true));
  }
  REQUIRE(shares.must_wait(kAnn));
  shares.end(kBob);
  const auto lock = shares.lock();
  CHECK(shares.decided(true));
}

TEST_CASE("a tenant's passes do not wait for its own streams, nor within the allowance") {
  ComputeShares shares;
  shares.begin(kAnn);
  shares.begin(kAnn);
  shares.charge(kAnn, 5);
  {
    const auto lock = shares.lock();
    shares.shares().step_ended(0.5);
    CHECK_FALSE(shares.decided(true));
  }
  CHECK_FALSE(shares.must_wait(kAnn));
  shares.begin(kBob);
  CHECK(shares.must_wait(kAnn));  // he begins 1.5 allowances ahead
  shares.charge(kBob, 0.5);
  CHECK_FALSE(shares.must_wait(kAnn));
  shares.charge(kAnn, 0.25);
  CHECK(shares.must_wait(kAnn));
}

TEST_CASE("while a model handles an event, others are charged and decide, and a job of its own is charged") {
  const auto accounts = std::make_shared<ServedAccounts>();
  ComputeShares first(accounts), second(accounts, 2);
  first.begin(kAnn);
  second.begin(kAnn);
  second.begin(kBob);
  const auto event = first.lock();
  CHECK(first.shares().served(kAnn) == 0);
  first.charge(kAnn, 1);
  second.charge(kAnn, 2);
  second.begin(kAnn);
  second.end(kAnn);
  {
    const auto other = second.lock();
    CHECK_FALSE(second.decided(true));
  }
  CHECK(second.must_wait(kAnn));
  CHECK(accounts->served(kAnn) == 2);
  CHECK(accounts->least_served(std::vector{kAnn, kBob}) == 0);
  CHECK(first.shares().served(kAnn) == 0);  // as it was when the event came
  first.shares().refresh();
  CHECK(first.shares().served(kAnn) == 2);
}
