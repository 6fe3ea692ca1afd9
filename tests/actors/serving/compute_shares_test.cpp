#include "actors/threads/compute_shares.h"

#include <catch2/catch.hpp>

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
