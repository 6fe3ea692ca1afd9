#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "cache/id_set.h"
#include "cache/ids.h"
#include "cache/prefix_hash.h"
#include "cache/scope.h"
#include "tests/support/count_allocations.h"

using namespace troupe;
using namespace troupe::cache;

TEST_CASE("blocks_for rounds up and does not overflow") {
  REQUIRE(blocks_for(0) == 0);
  REQUIRE(blocks_for(1) == 1);
  REQUIRE(blocks_for(kBlockSize) == 1);
  REQUIRE(blocks_for(kBlockSize + 1) == 2);
  REQUIRE(blocks_for(0xffffffffu) == 0x8000000u);
}

TEST_CASE("scopes of different users are never equal, whatever names they choose") {
  REQUIRE(user_scope(TenantId{0}) != kPublicScope);
  REQUIRE(user_scope(TenantId{1000}) != user_scope(TenantId{1001}));
  REQUIRE(named_scope(TenantId{1000}, "a") != user_scope(TenantId{1000}));
  REQUIRE(named_scope(TenantId{1000}, "a") != named_scope(TenantId{1000}, "b"));
  REQUIRE(named_scope(TenantId{1000}, "a") != named_scope(TenantId{1001}, "a"));
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i) {
    const auto uid = TenantId{static_cast<std::uint32_t>(random())};
    const auto other = TenantId{static_cast<std::uint32_t>(random())};
    const std::string name = std::to_string(random()), other_name = std::to_string(random());
    if (uid != other) REQUIRE(named_scope(uid, name) != named_scope(other, other_name));
    REQUIRE(named_scope(uid, name) != user_scope(other));
  }
}

TEST_CASE("the hashes of prefixes, which exported sequences hold, depend on all tokens so far and keep their values") {
  std::vector<TokenId> tokens(2 * kBlockSize + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  const std::vector<Anchor> anchors = anchors_of(tokens);
  REQUIRE(anchors == std::vector<Anchor>{{32, 0x34509d8372e62e6du}, {64, 0xb6d4b45a4f054b73u}});
  for (const std::size_t i : {0u, 31u}) {
    std::vector<TokenId> other = tokens;
    ++other[i];
    REQUIRE(anchors_of(other)[0].hash != anchors[0].hash);
    REQUIRE(anchors_of(other)[1].hash != anchors[1].hash);
  }
}

TEST_CASE("a request finds public prefixes and publishes in its own scope") {
  const ScopeList own = scopes_for(TenantId{7}, "");
  REQUIRE(own.size() == 2);
  REQUIRE(own.contains(kPublicScope));
  REQUIRE(own.publish() == user_scope(TenantId{7}));
  const ScopeList named = scopes_for(TenantId{7}, "notes");
  REQUIRE(named.publish() == named_scope(TenantId{7}, "notes"));
  REQUIRE_FALSE(named.contains(user_scope(TenantId{7})));
  const ScopeList all_users = scopes_for(TenantId{7}, "public");
  REQUIRE(all_users.size() == 1);
  REQUIRE(all_users.publish() == kPublicScope);
}

// Inserts the id. Returns by how many ranges the set has grown: each is one allocation.
std::int64_t growth(IdSet& set, std::uint64_t id) {
  const std::size_t before = test::num_live_allocations();
  set.insert(id);
  return static_cast<std::int64_t>(test::num_live_allocations() - before);
}

TEST_CASE("an id set without gaps is one range") {
  IdSet set;
  std::int64_t ranges = 0;
  for (std::uint64_t id : {3, 1, 2, 5, 4}) ranges += growth(set, id);
  if (test::counts_allocations()) REQUIRE(ranges == 1);
  REQUIRE(set.contains(1));
  REQUIRE(set.contains(5));
  REQUIRE_FALSE(set.contains(0));
  REQUIRE_FALSE(set.contains(6));
  set.clear();
  REQUIRE_FALSE(set.contains(3));
}

TEST_CASE("an id set agrees with std::set over random ids") {
  std::mt19937_64 random(23);
  IdSet set;
  std::set<std::uint64_t> twin;
  std::int64_t ranges = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t id = random() % 500;
    ranges += growth(set, id);
    twin.insert(id);
    std::int64_t expected = 0;
    for (std::uint64_t member : twin) expected += !twin.contains(member - 1);
    if (test::counts_allocations()) REQUIRE(ranges == expected);
    const std::uint64_t probe = random() % 510;
    REQUIRE(set.contains(probe) == twin.contains(probe));
  }
}
