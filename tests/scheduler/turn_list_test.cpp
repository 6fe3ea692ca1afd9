#include "scheduler/shares/turn_list.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

using troupe::TenantId;
using troupe::scheduler::TurnList;

TEST_CASE("items of equal cost are popped round-robin, one of each user, and each user's in order") {
  TurnList<int> list;
  REQUIRE_FALSE(list.pop());
  for (int i = 0; i < 3; ++i) list.push(TenantId{1}, 10 + i);
  list.push(TenantId{2}, 20);
  list.push(TenantId{3}, 30);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) order.push_back(*list.pop());
  REQUIRE(order == std::vector<int>{10, 20, 30});
  list.push(TenantId{2}, 21);  // a user that comes back queues behind the others
  REQUIRE(list.size() == 3);
  for (int i = 0; i < 3; ++i) order.push_back(*list.pop());
  REQUIRE(order == std::vector<int>{10, 20, 30, 11, 21, 12});
  REQUIRE(list.empty());
  REQUIRE_FALSE(list.pop());
}

namespace {

struct Thing {
  std::uint32_t uid;
  std::uint64_t cost;
  int number;
};

}  // namespace

TEST_CASE("in any order of arrival, the first item of a user waits for at most one item of each other user") {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u}) {
    std::mt19937 random(seed);
    TurnList<Thing> list;
    std::map<std::uint32_t, int> waiting;
    // By user whose first item waits: how many items of each other user were popped since.
    std::map<std::uint32_t, std::map<std::uint32_t, int>> overtaken;
    std::map<std::uint32_t, int> next_number, next_out;
    const auto pop = [&] {
      const auto thing = list.pop();
      REQUIRE(thing);
      REQUIRE(thing->number == next_out[thing->uid]++);  // in order within a user
      --waiting[thing->uid];
      overtaken.erase(thing->uid);
      for (auto& [uid, others] : overtaken) REQUIRE(++others[thing->uid] <= 1);
    };
    for (int i = 0; i < 5000; ++i) {
      if (random() % 2 == 0 && !list.empty()) {
        pop();
        continue;
      }
      const std::uint32_t uid = random() % 3 == 0 ? 1 + random() % 5 : 0;
      if (waiting[uid]++ == 0 && next_out[uid] == 0) overtaken[uid] = {};
      list.push(TenantId{uid}, {uid, 0, next_number[uid]++}, 1 + random() % (random() % 4 == 0 ? 100000 : 10));
    }
    while (!list.empty()) pop();
    REQUIRE(next_out == next_number);  // all were popped
  }
}

TEST_CASE("users that always have items get equal shares by cost, up to one item of each") {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    TurnList<Thing> list;
    constexpr std::uint64_t kMost[] = {10, 1000, 100000};
    std::uint64_t got[3] = {};
    const auto push = [&](std::uint32_t uid) {
      const std::uint64_t cost = 1 + random() % kMost[uid];
      list.push(TenantId{uid}, {uid, cost, 0}, cost);
    };
    for (std::uint32_t uid = 0; uid < 3; ++uid) push(uid), push(uid);
    for (int i = 0; i < 20000; ++i) {
      const Thing thing = *list.pop();
      got[thing.uid] += thing.cost;
      push(thing.uid);
      for (int a = 0; a < 3; ++a) {
        for (int b = 0; b < 3; ++b) REQUIRE(got[a] <= got[b] + kMost[a] + kMost[b]);
      }
    }
  }
}

TEST_CASE("removed items are not charged to their user") {
  TurnList<Thing> list;
  for (int i = 0; i < 4; ++i) list.push(TenantId{1}, {1, 1000, i}, 1000);
  list.push(TenantId{2}, {2, 1, 0}, 1);
  REQUIRE(list.remove_if([](const Thing& thing) { return thing.uid == 1 && thing.number < 3; }).size() == 3);
  REQUIRE(list.size() == 2);
  list.push(TenantId{3}, {3, 1, 0}, 1);
  REQUIRE(list.pop()->number == 3);
  REQUIRE(list.remove_if([](const Thing&) { return true; }).size() == 2);
  REQUIRE(list.empty());
  REQUIRE_FALSE(list.pop());
}
