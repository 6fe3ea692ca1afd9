#include "cache/block_accounts.h"

#include <tuple>

#include "config/assert.h"

namespace troupe::cache {
namespace {

constexpr TenantId kCommon{~std::uint64_t{0}};  // no tenant has this id

}  // namespace

BlockAccounts::BlockAccounts(std::uint32_t num_blocks)
    : entries_(num_blocks), links_(num_blocks), common_(account_of(kCommon)) {}

bool BlockAccounts::Turn::operator<(const Turn& other) const {
  return std::tuple(!gives, !idle, -above_floor, account->tenant) <
         std::tuple(!other.gives, !other.idle, -other.above_floor, other.account->tenant);
}

BlockAccounts::Turn BlockAccounts::turn_of(Account& account) {
  return {.gives = account.evictable() > 0,
          .idle = account.idle,
          .above_floor = std::int64_t{account.count.blocks} - account.floor,
          .account = &account};
}

// Calls fn(), which changes the account, and moves the account to its new turn.
template <class Fn>
void BlockAccounts::change(Account& account, const Fn& fn) {
  auto turn = turns_.extract(turn_of(account));
  num_unused_ -= account.count.unused;
  num_protected_ -= account.count.unused - account.evictable();
  fn();
  num_unused_ += account.count.unused;
  num_protected_ += account.count.unused - account.evictable();
  turn.value() = turn_of(account);
  turns_.insert(std::move(turn));
}

// --- accounts ---

const BlockAccounts::Account* BlockAccounts::find(TenantId tenant) const {
  const auto found = accounts_.find(tenant);
  return found == accounts_.end() ? nullptr : &found->second;
}

BlockAccounts::Account& BlockAccounts::account_of(TenantId tenant) {
  const auto [found, is_new] = accounts_.try_emplace(tenant);
  Account& account = found->second;
  if (!is_new) return account;
  account.tenant = tenant;
  account.used_at = num_given_;
  account.place = by_use_.insert(by_use_.end(), &account);
  turns_.insert(turn_of(account));
  return account;
}

void BlockAccounts::drop_if_empty(Account& account) {
  if (account.count.blocks > 0 || &account == &common_) return;
  turns_.erase(turn_of(account));
  if (!account.idle) by_use_.erase(account.place);
  accounts_.erase(account.tenant);
}

void BlockAccounts::used_now(Account& account) {
  account.used_at = num_given_;
  if (account.idle) {
    change(account, [&] { account.idle = false; });
    account.place = by_use_.insert(by_use_.end(), &account);
  } else {
    by_use_.splice(by_use_.end(), by_use_, account.place);
  }
}

void BlockAccounts::find_idle() {
  const std::uint64_t kept = std::uint64_t{kTurnoversKept} * entries_.size();
  while (!by_use_.empty() && num_given_ - by_use_.front()->used_at > kept) {
    Account& account = *by_use_.front();
    by_use_.pop_front();
    change(account, [&] { account.idle = true; });
  }
}

void BlockAccounts::set_floor(const Owner& owner) {
  Account* account = find(owner.tenant);
  if (account == nullptr) return;
  change(*account, [&] { account->floor = owner.floor; });
  used_now(*account);
}

// --- blocks ---

void BlockAccounts::add(BlockId block, const Owner& owner) {
  Entry& entry = entries_[block];
  TROUPE_ASSERT(entry.use == Use::free && owner.tenant != kCommon);
  Account& account = account_of(owner.tenant);
  entry = {&account, Use::used};
  change(account, [&] {
    account.floor = owner.floor;
    ++account.count.blocks;
  });
  ++num_given_;
  used_now(account);
}

void BlockAccounts::remove(BlockId block) {
  Entry& entry = entries_[block];
  TROUPE_ASSERT(entry.use != Use::free);
  Account& account = *entry.account;
  change(account, [&] {
    --account.count.blocks;
    if (entry.use == Use::unused) links_.remove(account.unused, block);
    if (entry.use != Use::used) --account.count.unused;
  });
  entry = {};
  drop_if_empty(account);
}

void BlockAccounts::use(BlockId block, TenantId by) {
  Entry& entry = entries_[block];
  TROUPE_ASSERT(entry.use != Use::free);
  Account& account = *entry.account;
  if (entry.use != Use::used) {
    change(account, [&] {
      if (entry.use == Use::unused) links_.remove(account.unused, block);
      --account.count.unused;
    });
    entry.use = Use::used;
  }
  if (account.tenant != by && &account != &common_) {
    change(account, [&] { --account.count.blocks; });
    change(common_, [&] { ++common_.count.blocks; });
    entry.account = &common_;
    drop_if_empty(account);
  }
  used_now(*entry.account);
}

void BlockAccounts::leave(BlockId block) {
  Entry& entry = entries_[block];
  TROUPE_ASSERT(entry.use == Use::used);
  Account& account = *entry.account;
  entry.use = Use::unused;
  change(account, [&] {
    links_.push_newest(account.unused, block);
    ++account.count.unused;
  });
  used_now(account);
}

void BlockAccounts::set_aside(BlockId block) {
  TROUPE_ASSERT(entries_[block].account == &common_ && entries_[block].use == Use::unused);
  links_.remove(common_.unused, block);
  entries_[block].use = Use::aside;
}

void BlockAccounts::put_back(BlockId block) {
  if (entries_[block].use != Use::aside) return;
  links_.push_oldest(common_.unused, block);
  entries_[block].use = Use::unused;
}

// --- victims and counts ---

BlockId BlockAccounts::victim_for(TenantId tenant) {
  find_idle();
  for (const Turn& turn : turns_) {
    if (!turn.gives)
      if (const BlockId own = oldest_of(tenant); own != kNoBlock) return own;
    if (turn.account->unused.size > 0) return turn.account->unused.oldest;
  }
  TROUPE_ASSERT(false);
  return kNoBlock;
}

BlockId BlockAccounts::oldest_of(TenantId tenant) const {
  const Account* account = find(tenant);
  return account == nullptr ? kNoBlock : account->unused.oldest;
}

BlockAccounts::Count BlockAccounts::count(TenantId tenant) const {
  const Account* account = find(tenant);
  return account == nullptr ? Count{} : account->count;
}

std::uint32_t BlockAccounts::num_evictable_for(TenantId tenant) const {
  const Account* own = find(tenant);
  const std::uint32_t own_protected = own == nullptr ? 0 : own->count.unused - own->evictable();
  return num_unused_ - (num_protected_ - own_protected);
}

void BlockAccounts::check() const {
  std::unordered_map<const Account*, Count> counts;
  std::unordered_map<const Account*, std::uint32_t> listed;
  for (const Entry& entry : entries_) {
    TROUPE_ASSERT((entry.use == Use::free) == (entry.account == nullptr));
    if (entry.account == nullptr) continue;
    ++counts[entry.account].blocks;
    if (entry.use != Use::used) ++counts[entry.account].unused;
    if (entry.use == Use::unused) ++listed[entry.account];
  }
  std::uint32_t num_unused = 0, num_protected = 0, num_idle = 0;
  for (const auto& [tenant, account] : accounts_) {
    TROUPE_ASSERT(account.count == counts[&account] && (account.count.blocks > 0 || &account == &common_));
    std::uint32_t size = 0;
    for (BlockId block = account.unused.oldest; block != LruLinks::kNone; block = links_.next_newer(block)) {
      TROUPE_ASSERT(entries_[block].account == &account && entries_[block].use == Use::unused);
      ++size;
    }
    TROUPE_ASSERT(size == account.unused.size && size == listed[&account]);
    num_unused += account.count.unused;
    num_protected += account.count.unused - account.evictable();
    num_idle += account.idle ? 1 : 0;
  }
  TROUPE_ASSERT(num_unused == num_unused_ && num_protected == num_protected_);
  TROUPE_ASSERT(turns_.size() == accounts_.size() && by_use_.size() + num_idle == accounts_.size());
}

}  // namespace troupe::cache
