#include "scheduler/turn_list.h"

#include <catch2/catch.hpp>
#include <vector>

using troupe::scheduler::TurnList;

TEST_CASE("each user gets one thing done in turn, whoever came first, and its own keep their order") {
  TurnList<int> list;
  REQUIRE_FALSE(list.pop());
  for (int i = 0; i < 3; ++i) list.push(1, 10 + i);
  list.push(2, 20);
  list.push(3, 30);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) order.push_back(*list.pop());
  REQUIRE(order == std::vector<int>{10, 20, 30});
  list.push(2, 21);  // who comes back queues behind
  REQUIRE(list.size() == 3);
  for (int i = 0; i < 3; ++i) order.push_back(*list.pop());
  REQUIRE(order == std::vector<int>{10, 20, 30, 11, 21, 12});
  REQUIRE(list.empty());
  REQUIRE_FALSE(list.pop());
}
