#include "scheduler/shares/shared_limit.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::scheduler {
namespace {

const Tenant kOwner{TenantId{0}, true};
const Tenant kAnn{TenantId{1001}, false};
const Tenant kBen{TenantId{1002}, false};

SharedLimit limit_of(std::uint64_t limit) {
  return SharedLimit({.name = "max_things", .what = "things", .limit = limit});
}

TEST_CASE("one user gets a quarter of a shared limit, and another gets as much") {
  SharedLimit limit = limit_of(64);
  for (int i = 0; i < 16; ++i) REQUIRE_FALSE(limit.try_take(kAnn));
  const auto refused = limit.try_take(kAnn);
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max_things");
  CHECK(refused->limit == 16);
  CHECK(refused->message ==
        "user 1001 has 16 things here and may have 16, the share of one user in max_things (64); wait until some are "
        "done");
  for (int i = 0; i < 16; ++i) REQUIRE_FALSE(limit.try_take(kBen));
  limit.give_back(kAnn.id);
  REQUIRE_FALSE(limit.try_take(kAnn));
  REQUIRE(limit.held() == 32);
}

TEST_CASE("guests cannot take the part kept for the owner, however many they are") {
  SharedLimit limit = limit_of(64);
  std::uint64_t taken = 0;
  std::optional<Refusal> refused;
  for (std::uint32_t uid = 1; uid <= 10 && !refused; ++uid) {
    for (int i = 0; i < 16 && !refused; ++i) {
      refused = limit.try_take({TenantId{uid}, false});
      if (!refused) ++taken;
    }
  }
  REQUIRE(taken == 60);
  CHECK(refused->outcome == Outcome::queue_full);
  CHECK(refused->message ==
        "the server is at its limit of 60 things (max_things; 4 more are kept for the owner); try again later");
  for (int i = 0; i < 4; ++i) REQUIRE_FALSE(limit.try_take(kOwner));
  REQUIRE(limit.try_take(kOwner)->outcome == Outcome::queue_full);
}

TEST_CASE("a guest's refusal beyond its share does not depend on others, and no refusal has what they hold") {
  const auto refusals = [](std::uint64_t own, std::initializer_list<std::uint64_t> others) {
    std::set<std::pair<Outcome, std::string>> seen;
    for (const std::uint64_t held : others) {
      SharedLimit limit = limit_of(64);
      limit.take(kBen.id, own);
      limit.take(kAnn.id, held);
      const auto refused = limit.try_take(kBen);
      REQUIRE(refused);
      seen.emplace(refused->outcome, refused->message);
    }
    return seen;
  };
  const auto beyond_share = refusals(16, {0, 20, 43, 44, 100});
  REQUIRE(beyond_share.size() == 1);
  CHECK(beyond_share.begin()->first == Outcome::quota);
  const auto beyond_limit = refusals(3, {57, 58, 61, 100});
  REQUIRE(beyond_limit.size() == 1);
  CHECK(beyond_limit.begin()->first == Outcome::queue_full);
}

TEST_CASE("the owner leaves a quarter to others") {
  SharedLimit limit = limit_of(64);
  for (int i = 0; i < 48; ++i) REQUIRE_FALSE(limit.try_take(kOwner));
  REQUIRE(limit.try_take(kOwner)->outcome == Outcome::quota);
  REQUIRE_FALSE(limit.try_take(kAnn));
}

TEST_CASE("a small limit grants a guest 1, and from 2 on keeps 1 for the owner") {
  SharedLimit one = limit_of(1);
  REQUIRE_FALSE(one.try_take(kAnn));
  REQUIRE(one.try_take(kOwner));
  SharedLimit two = limit_of(2);
  REQUIRE_FALSE(two.try_take(kAnn));
  REQUIRE(two.try_take(kBen)->outcome == Outcome::queue_full);
  REQUIRE_FALSE(two.try_take(kOwner));
  REQUIRE(limit_of(0).try_take(kOwner));
}

TEST_CASE("a user that holds nothing may exceed the share with one amount that fits, and alone the limit") {
  SharedLimit limit({.name = "max_bytes", .what = "bytes", .limit = 100, .takes_any_alone = true});
  REQUIRE_FALSE(limit.try_take(kAnn, 60));
  CHECK(limit.try_take(kAnn, 1)->outcome == Outcome::quota);
  CHECK(limit.try_take(kBen, 60)->outcome == Outcome::queue_full);
  CHECK(
      limit.try_take(kBen, 60)->message ==
      "the server is at its limit of 94 bytes (max_bytes; 6 more are kept for the owner), and 60 more do not fit; try "
      "again later");
  limit.give_back(kAnn.id, 60);
  REQUIRE_FALSE(limit.try_take(kBen, 1000));
  CHECK(limit.try_take(kAnn, 1)->outcome == Outcome::queue_full);
  limit.give_back(kBen.id, 1000);
  REQUIRE(limit_of(100).try_take(kBen, 101)->outcome == Outcome::queue_full);
}

TEST_CASE("over random amounts taken and given back, shares and limit hold, and the sums end at 0") {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    SharedLimit limit = limit_of(1000);
    std::vector<std::pair<Tenant, std::uint64_t>> held;
    for (int i = 0; i < 20000; ++i) {
      const std::uint32_t uid = random() % 7;
      const Tenant tenant{TenantId{uid}, uid == 0};
      const std::uint64_t amount = random() % 40;
      const std::uint64_t own = limit.held_by(tenant.id), all = limit.held();
      if (random() % 2 == 0 && !limit.try_take(tenant, amount)) {
        held.emplace_back(tenant, amount);
        REQUIRE(limit.held_by(tenant.id) == own + amount);
        REQUIRE(limit.held_by(tenant.id) <= share_of(1000, tenant.is_owner));
        REQUIRE(limit.held() <= 1000 - (tenant.is_owner ? 0 : kept_for_owner_of(1000)));
        continue;
      }
      REQUIRE(limit.held_by(tenant.id) == own);
      REQUIRE(limit.held() == all);
      if (held.empty()) continue;
      std::swap(held[random() % held.size()], held.back());
      limit.give_back(held.back().first.id, held.back().second);
      held.pop_back();
    }
    for (const auto& [tenant, amount] : held) limit.give_back(tenant.id, amount);
    REQUIRE(limit.held() == 0);
  }
}

}  // namespace
}  // namespace troupe::scheduler
