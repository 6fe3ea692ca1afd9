// Which sessions there are, are in use, and go to make room.
#include "actors/sessions/session_index.h"

#include <catch2/catch.hpp>
#include <random>

namespace troupe::actors {
namespace {

using scheduler::Outcome;
using scheduler::Refusal;

constexpr TenantId kAlice{1000}, kBob{1001};
constexpr std::uint64_t kPlenty = 1u << 20;

scheduler::Tenant tenant(TenantId id) { return {.id = id, .is_owner = id == kAlice, .policy = {}}; }

struct Index : SessionIndex {
  using SessionIndex::SessionIndex;
  std::vector<Evicted> evicted;
  std::uint64_t now = 0;

  SessionUse take(TenantId id, const std::string& name) {
    auto begun = begin(id, name);
    if (const auto* refusal = std::get_if<Refusal>(&begun)) FAIL(refusal->message);
    return std::get<SessionUse>(begun);
  }
  Refusal refused(TenantId id, const std::string& name) {
    auto begun = begin(id, name);
    REQUIRE(std::holds_alternative<Refusal>(begun));
    return std::get<Refusal>(begun);
  }
  bool grow(const SessionUse& use, SessionPart part, std::uint64_t bytes) {
    return !reserve(use, tenant(use.key.tenant), part, bytes, evicted);
  }
  // A whole turn, after which the session has files of these sizes.
  void turn(TenantId id, const std::string& name, std::uint64_t tokens, std::uint64_t contents) {
    const SessionUse use = take(id, name);
    REQUIRE(grow(use, SessionPart::tokens, tokens));
    REQUIRE(grow(use, SessionPart::contents, contents));
    end(use, ++now);
  }
  // "a" and "a/kv" of those that went since the last call.
  std::vector<std::string> gone() {
    std::vector<std::string> names;
    for (const Evicted& each : std::exchange(evicted, {})) names.push_back(each.key.name + (each.whole ? "" : "/kv"));
    return names;
  }
};

using Names = std::vector<std::string>;

TEST_CASE("a session's name is a plain file's name") {
  for (const char* good : {"a", "Z9", "a.b", "draft_2", "x-", "_", "-x"}) CHECK(is_session_name(good));
  for (const char* bad : {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "\xc3\xa9", "a:b", "~"})
    CHECK_FALSE(is_session_name(bad));
  CHECK(is_session_name(std::string(64, 'x')));
  CHECK_FALSE(is_session_name(std::string(65, 'x')));
  CHECK_FALSE(is_session_name(std::string("a\0b", 3)));
  Index index{config::SessionLimits{}};
  CHECK(index.refused(kAlice, "..").outcome == Outcome::invalid_argument);
}

TEST_CASE("one use at a time, and names of different tenants are different sessions") {
  Index index{config::SessionLimits{}};
  const SessionUse use = index.take(kAlice, "talk");
  CHECK(use.is_new);
  CHECK(index.refused(kAlice, "talk").field == "session");
  CHECK(index.take(kBob, "talk").is_new);
  REQUIRE(index.grow(use, SessionPart::tokens, 10));
  index.end(use, 5);
  CHECK_FALSE(index.take(kAlice, "talk").is_new);
  CHECK(index.find({kAlice, "talk"})->last_used == 5);
}

TEST_CASE("a new session without a file is forgotten at the end of its use") {
  Index index{config::SessionLimits{}};
  index.end(index.take(kAlice, "talk"), 1);
  CHECK(index.size() == 0);
  const SessionUse first = index.take(kAlice, "talk");
  REQUIRE(index.grow(first, SessionPart::tokens, 10));
  index.remove(first);
  CHECK(index.size() == 0);
  CHECK(index.total_bytes() == 0);
  const SessionUse second = index.take(kAlice, "talk");
  CHECK(second.generation != first.generation);
  CHECK_FALSE(index.is_current(first));
  CHECK_FALSE(index.grow(first, SessionPart::contents, 1));  // what the old one has on its way is refused
  index.end(first, 9);                                       // and its end changes nothing
  CHECK(index.find(second.key)->in_use);
}

TEST_CASE("a session that must, or must not, be there is refused by name") {
  Index index{config::SessionLimits{}};
  auto none = index.begin(kAlice, "talk", /*must_exist=*/true);
  REQUIRE(std::holds_alternative<Refusal>(none));
  CHECK(std::get<Refusal>(none).outcome == Outcome::invalid_argument);
  index.turn(kAlice, "talk", 1, 0);
  auto there = index.begin(kAlice, "talk", /*must_exist=*/false);
  REQUIRE(std::holds_alternative<Refusal>(there));
  CHECK(std::get<Refusal>(there).field == "to");
  CHECK_FALSE(index.find({kAlice, "talk"})->in_use);
}

TEST_CASE("one session too many: the one that was not used for longest goes, but none in use") {
  Index index{config::SessionLimits{.max_sessions_per_user = 3}};
  for (const char* name : {"a", "b", "c"}) index.turn(kAlice, name, 1, 1);
  index.turn(kAlice, "a", 1, 1);
  index.turn(kBob, "x", 1, 1);
  const SessionUse in_use = index.take(kAlice, "b");
  const SessionUse d = index.take(kAlice, "d");
  CHECK(index.gone().empty());  // it may still be refused
  REQUIRE(index.grow(d, SessionPart::tokens, 1));
  CHECK(index.gone() == Names{"c"});
  const SessionUse e = index.take(kAlice, "e");
  REQUIRE(index.grow(e, SessionPart::tokens, 1));
  CHECK(index.gone() == Names{"a"});
  const Refusal refusal = index.refused(kAlice, "f");
  CHECK(refusal.outcome == Outcome::quota);
  CHECK(refusal.field == "max_sessions_per_user");
  CHECK(refusal.limit == 3);
  CHECK(index.gone().empty());
  CHECK(index.of(kBob).size() == 1);
}

TEST_CASE("too many bytes: contents go before conversations, the oldest first, and the own ones last") {
  Index index{config::SessionLimits{.max_session_bytes = 100}};
  index.turn(kAlice, "a", 5, 20);
  index.turn(kAlice, "b", 5, 20);
  index.turn(kAlice, "c", 5, 20);
  const SessionUse c = index.take(kAlice, "c");
  REQUIRE(index.grow(c, SessionPart::contents, 50));
  CHECK(index.gone() == Names{"a/kv"});
  REQUIRE(index.grow(c, SessionPart::tokens, 45));
  CHECK(index.gone() == Names{"b/kv", "c/kv"});
  REQUIRE(index.grow(c, SessionPart::tokens, 96));
  CHECK(index.gone() == Names{"a", "b"});
  CHECK_FALSE(index.grow(c, SessionPart::contents, 5));  // contents never cost a conversation
  CHECK_FALSE(index.grow(c, SessionPart::tokens, 101));
  CHECK(index.find(c.key)->token_bytes == 96);
  CHECK(index.bytes_of(kAlice) == 96);
}

TEST_CASE("of sessions that were used in one second the first one goes first, whatever their names") {
  Index index{config::SessionLimits{.max_sessions_per_user = 3}};
  for (const char* name : {"z", "y", "a"}) {
    const SessionUse use = index.take(kAlice, name);
    REQUIRE(index.grow(use, SessionPart::tokens, 1));
    index.end(use, 7);
  }
  REQUIRE(index.grow(index.take(kAlice, "new"), SessionPart::tokens, 1));
  CHECK(index.gone() == Names{"z"});
}

TEST_CASE("what is refused evicts nothing") {
  Index index{
      config::SessionLimits{.max_sessions_per_user = 3, .max_session_bytes = 100, .max_total_session_bytes = 200}};
  for (const char* name : {"a", "b", "c"}) index.turn(kAlice, name, 10, 10);
  const SessionUse d = index.take(kAlice, "d");
  CHECK_FALSE(index.grow(d, SessionPart::tokens, 101));
  CHECK(index.gone().empty());
  CHECK(index.bytes_of(kAlice) == 60);
  index.turn(kBob, "x", 10, 0);
  REQUIRE(index.grow(index.take(kBob, "y"), SessionPart::tokens, 40));
  CHECK_FALSE(
      index.grow(index.take(kBob, "z"), SessionPart::tokens, 60));  // more than a guest's share, without "x", too
  CHECK(index.gone().empty());
  CHECK(index.total_bytes() == 110);
}

TEST_CASE("decisions are numbered: what is written after one has a larger number") {
  Index index{config::SessionLimits{.max_sessions_per_user = 1}};
  const SessionUse first = index.take(kAlice, "talk");
  REQUIRE(index.grow(first, SessionPart::tokens, 1));
  const std::uint64_t written = index.find(first.key)->token_number;
  CHECK(written > first.generation);
  const Evicted gone = index.remove(first);
  CHECK(gone.whole);
  CHECK(gone.number > written);
  const SessionUse second = index.take(kAlice, "talk");
  REQUIRE(index.grow(second, SessionPart::contents, 1));
  CHECK(index.find(second.key)->content_number > gone.number);
  const auto forgotten = index.end(second, 1);  // it has no tokens, but contents that were written
  REQUIRE(forgotten);
  CHECK(forgotten->whole);
  CHECK(index.total_bytes() == 0);
}

TEST_CASE("a session that cannot be used is there, takes no room, and is not evicted") {
  Index index{config::SessionLimits{.max_sessions_per_user = 1}};
  index.add_unusable({kAlice, "broken"}, 1);
  index.turn(kAlice, "a", 1, 1);
  index.turn(kAlice, "b", 1, 1);
  CHECK(index.gone() == Names{"a"});
  CHECK(index.find({kAlice, "broken"})->is_there());
  const SessionUse use = index.take(kAlice, "broken");
  CHECK_FALSE(use.is_new);
  index.end(use, 5);
  CHECK(index.find({kAlice, "broken"})->is_there());
  index.remove(index.take(kAlice, "broken"));
  CHECK(index.take(kAlice, "broken").is_new);
}

TEST_CASE("of the bytes of all sessions a guest may have a quarter") {
  Index index{config::SessionLimits{.max_session_bytes = kPlenty, .max_total_session_bytes = 160}};
  index.turn(kBob, "first", 30, 0);
  const SessionUse bob = index.take(kBob, "second");
  REQUIRE(index.grow(bob, SessionPart::tokens, 10));
  const auto over = index.reserve(bob, tenant(kBob), SessionPart::tokens, 11, index.evicted);
  REQUIRE(over);
  CHECK(over->field == "max_total_session_bytes");
  CHECK(over->outcome == Outcome::quota);
  CHECK(index.bytes_of(kBob) == 40);
  const SessionUse alice = index.take(kAlice, "talk");
  CHECK(index.grow(alice, SessionPart::tokens, 110));
  CHECK(index.total_bytes() == 150);
}

TEST_CASE("at random: the counts are those of the sessions, and nothing in use goes") {
  std::mt19937 random(3);
  Index index{
      config::SessionLimits{.max_sessions_per_user = 5, .max_session_bytes = 300, .max_total_session_bytes = 100000}};
  std::map<SessionKey, SessionUse> uses;
  for (int i = 0; i < 20000; ++i) {
    const TenantId id = random() % 2 ? kAlice : kBob;
    const SessionKey key{id, std::string(1, static_cast<char>('a' + random() % 8))};
    const auto use = uses.find(key);
    if (use == uses.end()) {
      auto begun = index.begin(id, key.name);
      if (std::holds_alternative<SessionUse>(begun)) uses.emplace(key, std::get<SessionUse>(begun));
    } else if (const auto chance = random() % 8; chance == 0) {
      index.remove(use->second);
      uses.erase(use);
    } else if (chance < 3) {
      index.end(use->second, ++index.now);
      uses.erase(use);
    } else {
      (void)index.grow(use->second, random() % 2 ? SessionPart::tokens : SessionPart::contents, random() % 150);
    }
    for (const Evicted& each : std::exchange(index.evicted, {})) {
      if (each.whole) REQUIRE_FALSE(uses.contains(each.key));
    }
    std::uint64_t total = 0;
    for (const TenantId each : {kAlice, kBob}) {
      std::uint64_t bytes = 0;
      for (const auto& [name, entry] : index.of(each)) {
        bytes += entry.bytes();
        REQUIRE(entry.in_use == uses.contains({each, name}));
        REQUIRE((entry.in_use || entry.token_bytes > 0));
      }
      REQUIRE(bytes == index.bytes_of(each));
      REQUIRE(bytes <= 300);
      const auto all = index.of(each);
      REQUIRE(std::ranges::count_if(all, [](const auto& one) { return one.second.in_use; }) <= 5);
      REQUIRE(std::ranges::count_if(all, [](const auto& one) { return one.second.token_bytes > 0; }) <= 5);
      total += bytes;
    }
    REQUIRE(total == index.total_bytes());
  }
}

}  // namespace
}  // namespace troupe::actors
