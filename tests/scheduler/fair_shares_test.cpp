#include "scheduler/shares/fair_shares.h"

#include <catch2/catch.hpp>
#include <memory>

using namespace troupe;
using namespace troupe::scheduler;

namespace {

constexpr TenantId kAnn{1}, kBob{2}, kCid{3};

}  // namespace

TEST_CASE("the tenant with fewer places goes first, then the one that was served less") {
  FairShares shares;
  shares.begin(kAnn);
  shares.begin(kBob);
  CHECK_FALSE(shares.goes_before(kAnn, kBob));
  CHECK_FALSE(shares.goes_before(kBob, kAnn));
  shares.charge(kAnn, 0.5);
  CHECK(shares.goes_before(kBob, kAnn));
  CHECK(shares.take_place(kBob) == 0);
  CHECK(shares.take_place(kBob) == 1);
  CHECK(shares.goes_before(kAnn, kBob));
  shares.clear_places();
  CHECK(shares.places(kBob) == 0);
  shares.claim_place(kBob);
  CHECK(shares.goes_before(kAnn, kBob));
  shares.clear_places();
  CHECK(shares.goes_before(kAnn, kBob));
  shares.withdraw_claim(kBob);
  CHECK(shares.goes_before(kBob, kAnn));
}

TEST_CASE("on_charge() gets the seconds of every charge, also where the counter begins higher or is forgotten") {
  FairShares shares;
  double ann = 0, bob = 0;
  shares.on_charge([&](TenantId tenant, double seconds) { (tenant == kAnn ? ann : bob) += seconds; });
  shares.begin(kAnn);
  shares.charge(kAnn, 2);
  shares.begin(kBob);  // begins at 2, which nothing was charged for
  shares.charge(kBob, 0.5);
  shares.end(kAnn);
  shares.charge(kAnn, 1);
  CHECK(ann == 3);
  CHECK(bob == 0.5);
}

TEST_CASE("an idle tenant saves up nothing") {
  FairShares shares;
  shares.begin(kAnn);
  shares.begin(kBob);
  shares.charge(kAnn, 7);
  shares.charge(kBob, 4);
  shares.begin(kCid);
  CHECK(shares.served(kCid) == 4);  // the least of the active ones
  shares.begin(kCid);
  CHECK(shares.served(kCid) == 4);
  shares.end(kBob);
  shares.charge(kAnn, 1);
  shares.charge(kCid, 5);
  shares.begin(kBob);
  CHECK(shares.served(kBob) == 8);
}

TEST_CASE("a newcomer begins three steps ahead of the others, once") {
  FairShares shares;
  shares.begin(kAnn);
  shares.charge(kAnn, 10);
  shares.step_ended(1);
  REQUIRE(shares.head_start() == 3);
  shares.begin(kBob);
  CHECK(shares.served(kBob) == 7);
  shares.charge(kBob, 2);
  shares.end(kBob);
  shares.begin(kBob);  // comes back at once
  CHECK(shares.served(kBob) == 9);
  shares.end(kBob);
  shares.charge(kAnn, 5);
  shares.begin(kBob);
  CHECK(shares.served(kBob) == 12);
}

TEST_CASE("what a tenant was served beyond the others stays with it while they are active") {
  FairShares shares;
  shares.begin(kAnn);
  shares.begin(kBob);
  shares.charge(kAnn, 10);
  shares.end(kAnn);
  shares.charge(kBob, 3);
  shares.begin(kAnn);
  CHECK(shares.served(kAnn) == 10);
  shares.end(kAnn);
  shares.charge(kAnn, 2);  // of a step that ran when its last request ended
  shares.begin(kAnn);
  CHECK(shares.served(kAnn) == 12);
  shares.end(kAnn);
  shares.end(kBob);  // no tenant is active: all begin equally
  shares.begin(kAnn);
  shares.begin(kBob);
  CHECK(shares.served(kAnn) == shares.served(kBob));
}

TEST_CASE("the allowance is two steps, as long as steps are lately") {
  FairShares shares;
  CHECK(shares.allowance() == 0);
  shares.step_ended(1);
  CHECK(shares.allowance() == 2);
  for (int i = 0; i < 100; ++i) shares.step_ended(0.25);
  CHECK(shares.allowance() == Approx(0.5).epsilon(0.01));
}

TEST_CASE("a tenant's counter grows by its seconds through its weight, which the last begin() gives") {
  FairShares shares;
  shares.begin(kAnn, 4);
  shares.begin(kBob);
  shares.charge(kAnn, 2);
  shares.charge(kBob, 2);
  CHECK(shares.served(kAnn) == 0.5);
  CHECK(shares.served(kBob) == 2);
  CHECK(shares.goes_before(kAnn, kBob));
  shares.begin(kAnn, 0.5);
  shares.charge(kAnn, 2);
  CHECK(shares.served(kAnn) == 4.5);
  shares.end(kAnn);
  shares.charge(kAnn, 1);  // of a step that ran while other requests of the tenant go on
  CHECK(shares.served(kAnn) == 6.5);
}

TEST_CASE("what one model computes for a tenant counts in the others, divided by the model's weight") {
  const auto time = std::make_shared<ServedTime>();
  FairShares first(time), second(time, 4);
  first.begin(kAnn);
  second.begin(kAnn);
  second.begin(kBob);
  first.charge(kAnn, 1);
  second.refresh();
  CHECK(second.served(kAnn) == 1);
  CHECK(second.goes_before(kBob, kAnn));
  second.charge(kBob, 8);
  first.refresh();
  CHECK(first.served(kBob) == 2);
  CHECK(second.goes_before(kAnn, kBob));
  second.step_ended(8);
  CHECK(second.allowance() == 4);

  // It is active in the other model: what it was served beyond others stays with it.
  first.end(kAnn);
  first.begin(kAnn);
  CHECK(first.served(kAnn) == 1);
}

TEST_CASE("a newcomer begins beside the tenants of all models, and is compared with those of its own") {
  const auto time = std::make_shared<ServedTime>();
  FairShares first(time), second(time);
  first.begin(kAnn);
  first.charge(kAnn, 5);
  second.begin(kBob);
  CHECK(second.served(kBob) == 5);
  second.charge(kBob, 1);
  CHECK(first.least_served() == 5);
  CHECK(second.least_served() == 6);
}

TEST_CASE("what others charge while a model decides is seen at its next event") {
  const auto time = std::make_shared<ServedTime>();
  FairShares first(time), second(time);
  double counted = 0;
  first.on_charge([&](TenantId, double seconds) { counted += seconds; });
  first.begin(kAnn);
  first.begin(kBob);
  second.begin(kAnn);
  CHECK(first.served(kAnn) == 0);
  CHECK(first.served(kBob) == 0);
  second.charge(kAnn, 2);
  first.charge_elsewhere(kBob, 1);
  CHECK(counted == 1);
  CHECK(first.served(kAnn) == 0);
  CHECK(first.served(kBob) == 0);
  first.charge(kBob, 4);  // its own shows
  CHECK(first.served(kBob) == 5);
  CHECK(first.goes_before(kAnn, kBob));
  first.refresh();
  CHECK(first.served(kAnn) == 2);
  second.end(kAnn);
  second.begin(kAnn);
  CHECK(second.served(kAnn) == 2);
}

TEST_CASE("models count as busy while they have active tenants") {
  const auto time = std::make_shared<ServedTime>();
  FairShares first(time), second(time);
  CHECK(first.num_busy_models() == 0);
  first.refresh();
  first.begin(kAnn);
  first.begin(kAnn);
  first.begin(kBob);
  CHECK(second.num_busy_models() == 1);
  second.begin(kAnn);
  first.refresh();
  CHECK(first.num_busy_models() == 2);
  first.end(kAnn);
  first.end(kBob);
  CHECK(first.num_busy_models() == 2);
  first.end(kAnn);
  CHECK(first.num_busy_models() == 1);
}
