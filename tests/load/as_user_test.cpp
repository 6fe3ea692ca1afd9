// Acting as another user: as root really, as others only the refusal.
#include "bench/load/drivers/as_user.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::load;

TEST_CASE("a user is found by name and by number, and a number needs no account") {
  const auto root = find_user("root");
  REQUIRE(root);
  CHECK(root->uid == 0);
  CHECK(root->gid == 0);
  CHECK(find_user("0")->groups == root->groups);
  const auto unknown = find_user("34567");
  REQUIRE(unknown);
  CHECK(unknown->uid == 34567);
  CHECK(unknown->gid == 34567);
  CHECK(unknown->groups.empty());
  for (const char* text : {"no such user", "", "-1", "4294967295", "99999999999"}) {
    INFO(text);
    const auto user = find_user(text);
    REQUIRE_FALSE(user);
    CHECK(user.error().code == ErrorCode::invalid_argument);
  }
}

TEST_CASE("work runs with the user's credentials, and so do its threads; the process keeps its own") {
  if (::geteuid() != 0) return test::skip("only root can act as another user");
  const User user{.uid = 34567, .gid = 45678, .groups = {45679}};
  REQUIRE(check_can_act_as(user));
  uid_t real = 0, effective = 0, saved = 0, of_thread = 0;
  gid_t group = 0, further[2] = {};
  int num_groups = 0;
  REQUIRE(act_as(user, [&] {
    ::getresuid(&real, &effective, &saved);
    group = ::getegid();
    num_groups = ::getgroups(2, further);
    std::thread([&] { of_thread = ::geteuid(); }).join();
  }));
  CHECK(real == 34567);
  CHECK(effective == 34567);
  CHECK(saved == 34567);  // it cannot become root again
  CHECK(of_thread == 34567);
  CHECK(group == 45678);
  REQUIRE(num_groups == 1);
  CHECK(further[0] == 45679);
  CHECK(::geteuid() == 0);
  CHECK(::getegid() == 0);
}

TEST_CASE("a process that is not root's acts as its own user alone") {
  if (::geteuid() == 0) return test::skip("root can act as every user");
  bool ran = false;
  const User self{.uid = ::geteuid(), .gid = ::getegid(), .groups = {}};
  REQUIRE(check_can_act_as(self));
  REQUIRE(act_as(self, [&] { ran = true; }));
  CHECK(ran);
  const User other{.uid = ::geteuid() + 1, .gid = ::getegid(), .groups = {}};
  const Status refused = check_can_act_as(other);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::permission);
  CHECK(refused.error().message.find("run this as root, or leave uid out") != std::string::npos);
  ran = false;
  CHECK_FALSE(act_as(other, [&] { ran = true; }));
  CHECK_FALSE(ran);
}
