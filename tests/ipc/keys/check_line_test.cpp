// In which order keys are checked, and which is given up where too many wait.
#include "ipc/keys/check_line.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::ipc;

namespace {

KeyCheck of_key(const std::string& id, const std::string& peer, const std::string& secret = "s") {
  return {.peer = peer, .id = id, .has_id = true, .secret = secret};
}

KeyCheck guess(const std::string& peer, const std::string& secret = "s") {
  return {.peer = peer, .id = "id of " + secret, .secret = secret};
}

void must_fit(CheckLine& line, KeyCheck check) { REQUIRE_FALSE(line.push(std::move(check))); }

// "id@peer:secret" of the next ones.
std::vector<std::string> pop_all(CheckLine& line) {
  std::vector<std::string> order;
  while (const auto check = line.pop())
    order.push_back((check->has_id ? check->id : "?") + "@" + check->peer + ":" + check->secret);
  return order;
}

using Order = std::vector<std::string>;

}  // namespace

TEST_CASE("check line: pairs of an id and a peer take turns, each with its own in their order") {
  CheckLine line;
  for (const char* secret : {"1", "2", "3"}) must_fit(line, of_key("x", "a", secret));
  must_fit(line, of_key("x", "b", "1"));
  must_fit(line, of_key("y", "a", "1"));
  must_fit(line, of_key("x", "b", "2"));
  CHECK(pop_all(line) == Order{"x@a:1", "x@b:1", "y@a:1", "x@a:2", "x@b:2", "x@a:3"});
  CHECK(line.empty());
  CHECK_FALSE(line.pop());
}

TEST_CASE("check line: a key whose id exists waits for one guess at most, however many there are") {
  CheckLine line;
  for (std::size_t i = 0; i < kMaxWaitingGuesses; ++i) must_fit(line, guess("a" + std::to_string(i), "1"));
  must_fit(line, of_key("x", "a0", "right"));
  const bool was_first = line.pop()->has_id;
  CHECK((was_first || line.pop()->has_id));
}

TEST_CASE("check line: guesses are not starved by keys whose ids exist") {
  CheckLine line;
  for (int i = 0; i < 5; ++i) must_fit(line, of_key("x", "a", std::to_string(i)));
  must_fit(line, guess("b"));
  const Order order = pop_all(line);
  CHECK((order[0] == "?@b:s" || order[1] == "?@b:s"));
}

TEST_CASE("check line: what waits is not held up by peers that come anew all the time") {
  CheckLine line;
  for (const char* secret : {"1", "2", "right"}) must_fit(line, of_key("x", "honest", secret));
  int checks = 0;
  for (bool is_done = false; !is_done; ++checks) {
    REQUIRE(checks < 20);
    for (int i = 0; i < 3; ++i) static_cast<void>(line.push(of_key("x", std::to_string(10 * checks + i))));
    is_done = line.pop()->secret == "right";
  }
}

TEST_CASE("check line: a full line takes the newest from the id that has most, and of it from the peer that has most") {
  CheckLine line;
  for (std::size_t i = 0; i + 2 < kMaxWaitingKeys; ++i) must_fit(line, of_key("x", "a", std::to_string(i)));
  must_fit(line, of_key("x", "b"));
  must_fit(line, of_key("y", "a"));
  const auto lost = [&](KeyCheck check) {
    const auto loser = line.push(std::move(check));
    REQUIRE(loser);
    return loser->id + "@" + loser->peer + ":" + loser->secret;
  };
  const std::string newest = std::to_string(kMaxWaitingKeys - 3);
  CHECK(lost(of_key("x", "a", "one more")) == "x@a:one more");
  CHECK(lost(of_key("x", "b", "another")) == "x@a:" + newest);
  CHECK(lost(of_key("z", "a")) == "x@a:" + std::to_string(kMaxWaitingKeys - 4));
  must_fit(line, guess("a"));  // another line
}

TEST_CASE("check line: guesses of one peer leave room for those of another") {
  CheckLine line;
  for (std::size_t i = 0; i < kMaxWaitingGuesses; ++i) must_fit(line, guess("a", std::to_string(i)));
  CHECK(line.push(guess("b"))->peer == "a");
  CHECK(line.push(guess("a", "more"))->secret == "more");
}

// The right key of each pair is the only one that it sends; others send what they like.
TEST_CASE("check line: a pair that sends one key waits for two checks of each that is there, whatever they do") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    CheckLine line;
    for (int i = 0; i < 40; ++i) {
      const std::string who = std::to_string(random() % 6);
      static_cast<void>(
          line.push(random() % 3 == 0 ? guess(who, std::to_string(i)) : of_key("x", who, std::to_string(i))));
      if (random() % 4 == 0) static_cast<void>(line.pop());
    }
    const auto lost = line.push(of_key("mine", "me", "right"));
    REQUIRE((!lost || lost->id != "mine"));
    int checks = 0;
    for (bool is_done = false; !is_done; ++checks) {
      static_cast<void>(line.push(of_key("x", std::to_string(random() % 6), "later" + std::to_string(checks))));
      static_cast<void>(line.push(guess(std::to_string(random() % 6), "later" + std::to_string(checks))));
      is_done = line.pop()->id == "mine";
    }
    REQUIRE(checks <= 2 * (2 * 6 + 1));  // six pairs, and as many guesses between
  }
}
