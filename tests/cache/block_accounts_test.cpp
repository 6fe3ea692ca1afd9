#include "cache/block_accounts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

using namespace troupe;
using namespace troupe::cache;

namespace {

constexpr TenantId kAnna{1}, kBert{2}, kCarl{3};

// Gives out `count` blocks from `first` on and leaves them cached, in this order.
void cache_blocks(BlockAccounts& accounts, const Owner& owner, BlockId first, std::uint32_t count) {
  for (BlockId block = first; block < first + count; ++block) accounts.add(block, owner);
  for (BlockId block = first; block < first + count; ++block) accounts.leave(block);
}

BlockId evict_for(BlockAccounts& accounts, TenantId tenant) {
  const BlockId victim = accounts.victim_for(tenant);
  accounts.remove(victim);
  accounts.check();
  return victim;
}

}  // namespace

TEST_CASE("the tenant with most blocks gives one up, the least recently used") {
  BlockAccounts accounts(10);
  cache_blocks(accounts, {.tenant = kBert}, 0, 3);
  cache_blocks(accounts, {.tenant = kAnna}, 3, 7);
  for (BlockId expected = 3; expected < 7; ++expected) REQUIRE(evict_for(accounts, kAnna) == expected);
  REQUIRE(accounts.count(kBert) == BlockAccounts::Count{3, 3});
  // Now both have as many.
  evict_for(accounts, kCarl);
  evict_for(accounts, kCarl);
  REQUIRE((accounts.count(kAnna).blocks == 2 && accounts.count(kBert).blocks == 2));
}

TEST_CASE("blocks in use count, but cannot be evicted") {
  BlockAccounts accounts(10);
  for (BlockId block = 0; block < 6; ++block) accounts.add(block, {.tenant = kAnna});
  cache_blocks(accounts, {.tenant = kBert}, 6, 3);
  REQUIRE(accounts.victim_for(kAnna) == 6);  // Anna has none to evict
  accounts.leave(5);
  REQUIRE(accounts.victim_for(kBert) == 5);
}

TEST_CASE("what is within a floor is not evicted for others as long as there is something else") {
  BlockAccounts accounts(10);
  cache_blocks(accounts, {.tenant = kBert, .floor = 6}, 0, 6);
  cache_blocks(accounts, {.tenant = kAnna}, 6, 4);
  REQUIRE(accounts.num_evictable_for(kAnna) == 4);
  REQUIRE(accounts.num_evictable_for(kBert) == 10);
  accounts.set_floor({.tenant = kBert, .floor = 5});
  REQUIRE(accounts.num_evictable_for(kAnna) == 5);
  REQUIRE(evict_for(accounts, kBert) == 6);  // recalled from Anna, with more above hers
  for (int i = 0; i < 4; ++i) evict_for(accounts, kAnna);
  REQUIRE(accounts.count(kBert).blocks == 5);
  REQUIRE(accounts.num_evictable_for(kAnna) == 0);
  REQUIRE(accounts.victim_for(kAnna) == 1);  // for a sequence that runs alone
  // Blocks in use fill the floor first.
  accounts.use(1, kBert);
  REQUIRE(accounts.num_evictable_for(kAnna) == 0);
  accounts.add(0, {.tenant = kBert, .floor = 5});
  REQUIRE(accounts.num_evictable_for(kAnna) == 1);
}

TEST_CASE("a block that sequences of two tenants used counts for none of them") {
  BlockAccounts accounts(4);
  accounts.add(0, {.tenant = kAnna});
  accounts.use(0, kAnna);
  REQUIRE(accounts.is_of(0, kAnna));
  accounts.use(0, kBert);
  REQUIRE_FALSE((accounts.is_of(0, kAnna) || accounts.is_of(0, kBert)));
  REQUIRE(accounts.count(kAnna) == BlockAccounts::Count{});
  accounts.leave(0);
  accounts.check();
  accounts.use(0, kAnna);
  accounts.leave(0);
  REQUIRE(accounts.count(kAnna) == BlockAccounts::Count{});
  REQUIRE(evict_for(accounts, kAnna) == 0);
}

TEST_CASE("a common block that is set aside is no victim, and the next one when it is put back") {
  BlockAccounts accounts(4);
  for (BlockId block = 0; block < 3; ++block) {
    accounts.add(block, {.tenant = kAnna});
    accounts.use(block, kBert);
    accounts.leave(block);
  }
  REQUIRE(accounts.victim_for(kAnna) == 0);
  accounts.set_aside(0);
  accounts.check();
  REQUIRE(accounts.num_unused() == 3);
  REQUIRE(accounts.victim_for(kAnna) == 1);
  accounts.put_back(2);  // is not set aside
  accounts.put_back(0);
  REQUIRE(accounts.victim_for(kAnna) == 0);
  accounts.set_aside(0);
  accounts.use(0, kAnna);  // a use ends it, too
  accounts.leave(0);
  accounts.put_back(0);
  accounts.check();
  REQUIRE(accounts.victim_for(kAnna) == 1);
}

TEST_CASE("what a tenant left long ago goes first, however little it is, but not its floor") {
  BlockAccounts accounts(8);
  cache_blocks(accounts, {.tenant = kBert}, 0, 2);
  cache_blocks(accounts, {.tenant = kCarl, .floor = 1}, 2, 2);
  cache_blocks(accounts, {.tenant = kAnna}, 4, 4);
  std::uint32_t given = 6;  // since Bert's last use; Carl's was 2 later
  for (; given < 8 * kTurnoversKept; ++given) {
    const BlockId block = evict_for(accounts, kAnna);
    REQUIRE(block >= 4);
    cache_blocks(accounts, {.tenant = kAnna}, block, 1);
  }
  std::vector<BlockId> gone;
  while (gone.size() < 3) {
    const BlockId block = evict_for(accounts, kAnna);
    if (block < 4) gone.push_back(block);
    cache_blocks(accounts, {.tenant = kAnna}, block, 1);
  }
  REQUIRE(gone == std::vector<BlockId>{0, 1, 2});
  for (int i = 0; i < 100; ++i) {
    const BlockId block = evict_for(accounts, kAnna);
    REQUIRE(block != 3);
    cache_blocks(accounts, {.tenant = kAnna}, block, 1);
  }
}

TEST_CASE("accounts agree with plain lists over random operations") {
  struct Twin {
    enum { free, used, unused } use = free;
    TenantId tenant{};
    std::uint64_t left_at = 0;
  };
  constexpr TenantId kNone{~std::uint64_t{0}};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto num_blocks = static_cast<std::uint32_t>(2 + random() % 20);
    BlockAccounts accounts(num_blocks);
    std::vector<Twin> twins(num_blocks);
    std::map<TenantId, std::uint32_t> floors;
    std::map<TenantId, std::uint64_t> used_at;  // blocks given out until then
    std::uint64_t now = 0, given = 0;
    const auto count = [&](TenantId tenant, bool only_unused) {
      return static_cast<std::uint32_t>(std::ranges::count_if(twins, [&](const Twin& twin) {
        return twin.use != Twin::free && twin.tenant == tenant && (!only_unused || twin.use == Twin::unused);
      }));
    };
    const auto oldest_of = [&](TenantId tenant) {
      BlockId oldest = kNoBlock;
      for (BlockId block = 0; block < num_blocks; ++block)
        if (twins[block].use == Twin::unused && twins[block].tenant == tenant &&
            (oldest == kNoBlock || twins[block].left_at < twins[oldest].left_at))
          oldest = block;
      return oldest;
    };
    const auto expected_victim = [&](TenantId wants) {
      TenantId best{};
      std::tuple<bool, bool, std::int64_t> best_turn;
      const auto turn_of = [&](TenantId tenant) {
        const std::int64_t above = std::int64_t{count(tenant, false)} - floors[tenant];
        return std::tuple(above > 0, given - used_at[tenant] > std::uint64_t{kTurnoversKept} * num_blocks, above);
      };
      for (const TenantId tenant : {kAnna, kBert, kCarl, kNone}) {
        if (count(tenant, true) == 0 || (best != TenantId{} && turn_of(tenant) <= best_turn)) continue;
        best = tenant;
        best_turn = turn_of(tenant);
      }
      return !std::get<0>(best_turn) && count(wants, true) > 0 ? oldest_of(wants) : oldest_of(best);
    };
    for (int i = 0; i < 3000; ++i) {
      const auto block = static_cast<BlockId>(random() % num_blocks);
      // Carl comes rarely, so that he is idle at times.
      const TenantId tenant = random() % 100 == 0 ? kCarl : (random() % 2 == 0 ? kAnna : kBert);
      const Owner owner{.tenant = tenant, .floor = static_cast<std::uint32_t>(random() % 3 == 0 ? 0 : num_blocks / 4)};
      Twin& twin = twins[block];
      if (twin.use == Twin::free) {
        accounts.add(block, owner);
        twin = {Twin::used, tenant, 0};
        floors[tenant] = owner.floor;
        used_at[tenant] = ++given;
      } else if (twin.use == Twin::used && random() % 4 != 0) {
        accounts.leave(block);
        twin.use = Twin::unused;
        twin.left_at = ++now;
        used_at[twin.tenant] = given;
      } else if (random() % 8 == 0) {
        accounts.use(block, tenant);
        if (twin.tenant != tenant) twin.tenant = kNone;
        twin.use = Twin::used;
        used_at[twin.tenant] = given;
      } else if (accounts.num_unused() > 0) {
        const BlockId victim = evict_for(accounts, tenant);
        REQUIRE(victim == expected_victim(tenant));
        twins[victim] = {};
      }
      std::uint32_t evictable = 0;
      for (const TenantId of : {kAnna, kBert, kCarl, kNone}) {
        const std::uint32_t blocks = count(of, false), unused = count(of, true);
        REQUIRE(accounts.count(of) == BlockAccounts::Count{blocks, unused});
        evictable += of == tenant ? unused : std::min(unused, blocks - std::min(blocks, floors[of]));
      }
      REQUIRE(accounts.num_evictable_for(tenant) == evictable);
      accounts.check();
    }
  }
}
