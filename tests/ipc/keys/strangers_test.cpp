// Which connection without a right key goes first.
#include "ipc/keys/strangers.h"

#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

using namespace troupe::ipc;
using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = std::chrono::steady_clock::time_point;

namespace {

const TimePoint kNow = TimePoint() + seconds(1000);

Stranger idle(const std::string& peer, milliseconds time) { return {.peer = peer, .idle_since = kNow - time}; }

// Who makes room; the ones with these indices have sent what is not read yet.
std::optional<std::size_t> goes_for(const std::vector<Stranger>& strangers, const std::string& newcomer,
                                    const std::set<std::size_t>& unread = {}) {
  return stranger_to_make_room(strangers, newcomer, [&](std::size_t i) { return unread.contains(i); });
}

Stranger checked(const std::string& peer) { return {.peer = peer}; }

std::vector<Stranger> many(std::size_t count, const std::string& peer, milliseconds time) {
  std::vector<Stranger> strangers;
  for (std::size_t i = 0; i < count; ++i)
    strangers.push_back(idle(peer, time + milliseconds(i)));  // the last one the longest
  return strangers;
}

}  // namespace

TEST_CASE("strangers: without a place the longest idle makes room, and first one that has sent nothing unread") {
  const std::vector<Stranger> three{idle("a", seconds(1)), idle("a", seconds(3)), idle("a", seconds(2))};
  CHECK(goes_for(three, "a") == 1u);
  CHECK(goes_for(three, "a", {1}) == 2u);
  CHECK(goes_for(three, "a", {0, 1, 2}) == 1u);
  CHECK(goes_for({idle("a", milliseconds(0))}, "a") == 0u);  // however short
}

TEST_CASE("strangers: room is made by the peer that has most, never by one that has no more than the newcomer's") {
  std::vector<Stranger> strangers = many(3, "a", seconds(1));
  strangers.push_back(idle("b", seconds(50)));
  CHECK(goes_for(strangers, "c") == 2u);
  CHECK(goes_for(strangers, "b") == 2u);
  CHECK(goes_for(strangers, "") == 2u);
  CHECK(goes_for(strangers, "a") == 2u);
  CHECK_FALSE(goes_for({checked("a"), checked("a"), idle("b", seconds(50))}, "a"));
  CHECK(goes_for({checked("a"), checked("a"), idle("b", seconds(50))}, "b") == 2u);
}

TEST_CASE("strangers: one whose key is being checked stays") {
  CHECK_FALSE(goes_for({checked("a"), checked("a")}, "a"));
  CHECK(goes_for({checked("a"), idle("a", milliseconds(1)), checked("a")}, "b") == 1u);
  CHECK_FALSE(goes_for({}, "a"));
  CHECK_FALSE(stranger_beyond_part(std::vector<Stranger>(64, checked("a")), 64, kNow));
}

TEST_CASE("strangers: all places are used for a moment, and a part of them is kept") {
  constexpr std::size_t kLimit = 64;
  CHECK_FALSE(stranger_beyond_part(many(kLimit, "a", milliseconds(0)), kLimit, kNow));
  std::vector<Stranger> strangers = many(kLimit, "a", kStrangerGrace);
  std::size_t closed = 0;
  for (; const auto goes = stranger_beyond_part(strangers, kLimit, kNow); ++closed) {
    REQUIRE(*goes == strangers.size() - 1);
    strangers.pop_back();
  }
  CHECK(strangers.size() == strangers_part_of_one(kLimit));
  for (int i = 0; i < 100; ++i) strangers.push_back(idle("other" + std::to_string(i), seconds(2) + milliseconds(i)));
  while (const auto goes = stranger_beyond_part(strangers, kLimit, kNow))
    strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(*goes));
  CHECK(strangers.size() == strangers_part(kLimit));
}

TEST_CASE("strangers: each limit leaves at least one place to those that stay, and never all") {
  for (std::size_t limit = 2; limit < 300; ++limit) {
    REQUIRE(strangers_part_of_one(limit) >= 1);
    REQUIRE(strangers_part_of_one(limit) <= strangers_part(limit));
    REQUIRE(strangers_part(limit) <= limit / 2);
  }
}
