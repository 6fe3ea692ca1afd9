// Which tenant each block counts for, and whose block is evicted when one is needed.
//
// A block counts for the tenant whose sequence it was given to, while sequences use it and while it is cached. Once a
// sequence of another tenant uses it, too, which only prefixes of a shared scope allow, it counts for none: it belongs
// to the common account until it is free. So all blocks below a tenant's cached block count for that tenant, and they
// are older than it: the least recently used block of a tenant is a leaf of the prefix tree.
//
// The next victim is the least recently used block of one account. This account is
//   1. one that has more blocks than its floor and cached ones that no sequence uses: first the idle ones (not used
//      while kTurnoversKept times as many blocks as the pool has were given out), then the others, the one with most
//      blocks above its floor first. So what a tenant publishes displaces its own blocks once it has more than the
//      others, and while it has cached ones, a tenant with less than pool / (number of accounts with blocks) loses
//      none to it. One tenant alone has everything, also what others left long ago;
//   2. if there is none, the account of the tenant that needs the block;
//   3. if that has none to evict, any other: see num_evictable_for() for when this happens.
// The common account is one of them, without a floor. Of its blocks those below which other tenants' blocks lie are not
// evicted before these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "cache/lru_list.h"

namespace troupe::cache {

// The tenant of a sequence, and how many blocks of group 0 it may count on.
struct Owner {
  TenantId tenant{};
  std::uint32_t floor = 0;           // cached blocks of it up to here are not evicted for other tenants
  std::uint32_t ceiling = kNoBlock;  // blocks that sequences of it use, and cached ones, together
  friend bool operator==(const Owner&, const Owner&) = default;
};

// An idle tenant keeps its blocks until this many times the pool's blocks were given out.
inline constexpr std::uint32_t kTurnoversKept = 8;

// Not thread-safe. Calls are O(log accounts), but for what their comments say. Accounts are allocated and freed as
// tenants come and go; nothing else is.
class BlockAccounts {
 public:
  struct Count {
    std::uint32_t blocks = 0;  // used or cached
    std::uint32_t unused = 0;  // of these, cached and used by no sequence
    friend bool operator==(const Count&, const Count&) = default;
  };

  explicit BlockAccounts(std::uint32_t num_blocks);
  BlockAccounts(const BlockAccounts&) = delete;
  BlockAccounts& operator=(const BlockAccounts&) = delete;

  // Sets the floor of the owner's account, if it has one, and counts as a use of it. A floor is forgotten with the last
  // block of the account.
  void set_floor(const Owner& owner);

  // A block that was free is given to a sequence of `owner`. Sets the floor, too.
  void add(BlockId block, const Owner& owner);
  // A block has become free.
  void remove(BlockId block);
  // A sequence of `by` begins to use a block that is in use or cached.
  void use(BlockId block, TenantId by);
  // No sequence uses the block any more, and it stays cached: as the most recently used of its account.
  void leave(BlockId block);
  // An unused block of the common account cannot be evicted yet: it is no victim until put_back() or its next use.
  void set_aside(BlockId block);
  // Makes it the least recently used again. Does nothing if the block is not set aside.
  void put_back(BlockId block);

  // The block to evict next for a tenant, as above; num_unused() must not be 0, and one must not be set aside
  // (asserted). O(accounts) in the third case.
  [[nodiscard]] BlockId victim_for(TenantId tenant);
  // The least recently used block of this tenant; kNoBlock if all are in use.
  [[nodiscard]] BlockId oldest_of(TenantId tenant) const;

  [[nodiscard]] Count count(TenantId tenant) const;
  [[nodiscard]] bool is_of(BlockId block, TenantId tenant) const { return entries_[block].account->tenant == tenant; }
  [[nodiscard]] std::uint32_t num_unused() const { return num_unused_; }
  // How many blocks can be evicted for this tenant so that every other one keeps its floor. But if blocks of the common
  // account are among them below which a tenant's blocks lie that are within its floor, then such a block is evicted
  // for each of them: what several tenants use is not protected by the floor of one.
  [[nodiscard]] std::uint32_t num_evictable_for(TenantId tenant) const;
  // Checks all counts and lists (asserted). O(blocks + accounts).
  void check() const;

 private:
  enum class Use : std::uint8_t { free, used, unused, aside };
  struct Account {
    TenantId tenant{};
    std::uint32_t floor = 0;
    Count count;
    LruLinks::List unused;  // without those set aside
    std::uint64_t used_at = 0;
    bool idle = false;                    // and not in by_use_
    std::list<Account*>::iterator place;  // in by_use_

    std::uint32_t above_floor() const { return count.blocks > floor ? count.blocks - floor : 0; }
    std::uint32_t evictable() const { return std::min(count.unused, above_floor()); }
  };
  // An account in the order of victims.
  struct Turn {
    bool gives;
    bool idle;
    std::int64_t above_floor;
    Account* account;
    bool operator<(const Turn& other) const;
  };
  struct Entry {
    Account* account = nullptr;
    Use use = Use::free;
  };

  static Turn turn_of(Account& account);
  template <class Fn>
  void change(Account& account, const Fn& fn);
  Account& account_of(TenantId tenant);
  const Account* find(TenantId tenant) const;
  Account* find(TenantId tenant) { return const_cast<Account*>(std::as_const(*this).find(tenant)); }
  void used_now(Account& account);
  void drop_if_empty(Account& account);
  void find_idle();

  std::vector<Entry> entries_;  // by block
  LruLinks links_;
  std::unordered_map<TenantId, Account> accounts_;  // those with blocks, and the common one
  std::set<Turn> turns_;                            // of all accounts, the next victim first
  std::list<Account*> by_use_;                      // those that are not idle, the least recently used first
  std::uint64_t num_given_ = 0;                     // blocks, so far
  std::uint32_t num_unused_ = 0;
  std::uint32_t num_protected_ = 0;  // unused blocks within floors
  Account& common_;
};

}  // namespace troupe::cache
