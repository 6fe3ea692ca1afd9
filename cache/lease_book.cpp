#include "cache/lease_book.h"

#include <utility>

#include "cache/lease_state.h"

namespace troupe::cache {
namespace {

PoolCounters counters_of_ids(const Attachments& attachments) {
  return {.total = attachments.num_ids(),
          .free = attachments.num_free(),
          .cached = attachments.num_attached(),
          .available = attachments.available(),
          .evictions = attachments.num_evictions()};
}

}  // namespace

LeaseBook::State::State(const LeaseBookOptions& book_options)
    : options(book_options),
      epoch(options.epoch),
      pool(options.groups.at(0).num_blocks),
      tree(pool),
      snapshots(pool.num_blocks(), options.snapshot_rule.every > 0 ? options.num_snapshots : 0) {
  TROUPE_ASSERT(num_groups() <= kMaxGroups && options.groups[0].window == 0);
  TROUPE_ASSERT(options.snapshot_rule.every % kBlockSize == 0);
  for (GroupId group = 0; group < num_groups(); ++group)
    attached.emplace_back(pool.num_blocks(), group == 0 ? 0 : options.groups[group].num_blocks);
  if (!options.await_quiesce) return;
  TROUPE_ASSERT(options.epoch > 0);
  Kept everything{options.epoch - 1, {}};
  everything.holding.tables.resize(num_groups());
  for (GroupId group = 0; group < num_groups(); ++group)
    while (counters_of(group).free > 0) everything.holding.tables[group].push_back(take(group, {}));
  while (snapshots.num_free() > 0) everything.holding.spares.push_back(snapshots.take());
  orphans.push_back(std::move(everything));
}

LeaseBook::State::~State() {
  for_each_holding([this](const Holding& holding) { give_back(holding); });
}

// --- the numbering of messages ---

LeaseBook::State::Lease* LeaseBook::State::next_message(const LeaseKey& key, bool may_begin, LeaseEffects& effects) {
  TROUPE_ASSERT(key.number > 0 && key.seen < key.number);
  if (key.epoch != epoch || ended.contains(key.sequence)) return nullptr;
  auto found = leases.find(key.sequence);
  if (found == leases.end()) {
    if (key.number != 1) return nullptr;
    TROUPE_ASSERT(may_begin);
    found = leases.try_emplace(key.sequence).first;
  }
  Lease& lease = found->second;
  if (key.number <= lease.last_number) {
    for (const LeaseAnswer& given : lease.unseen)
      if (given.number == key.number) effects.answers.push_back(given);
    return nullptr;
  }
  if (key.number != lease.last_number + 1) return nullptr;
  lease.last_number = key.number;
  see(lease, key.seen);
  return &lease;
}

void LeaseBook::State::see(Lease& lease, std::uint32_t seen) {
  while (!lease.unseen.empty() && lease.unseen.front().number <= seen) lease.unseen.pop_front();
  auto& displaced = lease.holding.displaced;
  const auto unseen =
      std::find_if(displaced.begin(), displaced.end(), [&](const Displaced& entry) { return entry.number > seen; });
  for (auto entry = displaced.begin(); entry != unseen; ++entry) let_go(entry->group, entry->block);
  displaced.erase(displaced.begin(), unseen);
}

// --- holding ---

PoolCounters LeaseBook::State::counters_of(GroupId group) const {
  if (group > 0) return counters_of_ids(attached[group]);
  return {.total = pool.num_blocks(),
          .free = pool.num_free(),
          .cached = tree.num_blocks(),
          .available = pool.num_free() + tree.num_unheld(),
          .evictions = evictions};
}

BlockId LeaseBook::State::block_at(GroupId group, BlockId node) const {
  return group == 0 ? node : attached[group].of(node);
}

bool LeaseBook::State::held_at(GroupId group, BlockId node) const {
  return group == 0 ? tree.held(node) : attached[group].held(attached[group].of(node));
}

// A radix node that is evicted loses its blocks of all groups.
void LeaseBook::State::was_evicted(BlockId node) {
  for (Attachments& ids : attached) ids.detach(node);
  snapshots.detach(node);
  ++evictions;
}

// A free block of the group, or an evicted one. Of group 0 first the owner's, if it has as many as its ceiling.
BlockId LeaseBook::State::take(GroupId group, const Owner& owner) {
  if (group > 0) return attached[group].take(owner);
  const BlockAccounts& accounts = pool.accounts();
  for (BlockId own = accounts.oldest_of(owner.tenant);
       own != kNoBlock && accounts.count(owner.tenant).blocks >= owner.ceiling;
       own = accounts.oldest_of(owner.tenant)) {
    tree.evict(own);
    was_evicted(own);
  }
  if (pool.num_free() == 0) was_evicted(tree.evict_for(owner.tenant));
  return pool.allocate(owner);
}

// One more entry at the end of the tables.
void LeaseBook::State::take_entry(Lease& lease) {
  Holding& holding = lease.holding;
  for (GroupId group = 0; group < num_groups(); ++group) {
    BlockTable& table = holding.tables[group];
    table.push_back(table.size() < held_begin(group, holding) ? kNoBlock : take(group, lease.owner));
  }
}

// How many entries the blocks that the lease may be given suffice for, once it holds what it reads after these nodes of
// the tree. A node within the floor of another tenant is counted as if it could have been evicted: it may be one fewer.
std::uint32_t LeaseBook::State::pool_room(const Lease& lease, std::span<const BlockId> nodes) const {
  std::uint32_t room = kNoBlock;
  for (GroupId group = 0; group < num_groups(); ++group) {
    const auto read = nodes.subspan(window_begin(group, nodes.size()));
    const auto unheld = static_cast<std::uint32_t>(
        std::count_if(read.begin(), read.end(), [&](BlockId node) { return !held_at(group, node); }));
    std::uint32_t available = counters_of(group).available;
    const std::uint32_t evictable = pool.accounts().num_evictable_for(lease.owner.tenant);
    if (group == 0 && evictable < tree.num_unheld() && !runs_alone(lease)) available = pool.num_free() + evictable;
    room = std::min(room, available - std::min(available, unheld));
  }
  return room;
}

// How many blocks the owner can be given below its ceiling, once it uses these nodes of the tree, by evicting its own.
std::uint32_t LeaseBook::State::ceiling_room(const Owner& owner, std::span<const BlockId> nodes) const {
  const BlockAccounts::Count count = pool.accounts().count(owner.tenant);
  const auto becomes_used = [&](BlockId node) { return !tree.held(node) && pool.accounts().is_of(node, owner.tenant); };
  const auto used = count.blocks - count.unused + std::ranges::count_if(nodes, becomes_used);
  return owner.ceiling - static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(owner.ceiling, used));
}

// No other sequence of this epoch holds blocks.
bool LeaseBook::State::runs_alone(const Lease& lease) const {
  return std::ranges::none_of(
      leases, [&](const auto& entry) { return entry.second.phase == Phase::held && &entry.second != &lease; });
}

void LeaseBook::extend(const Extend& message, LeaseEffects& effects) {
  State& s = *state_;
  State::Lease* lease = s.next_message(message.key, false, effects);
  if (lease == nullptr) return;
  TROUPE_ASSERT(lease->phase == State::Phase::held && message.num_blocks > 0);
  const std::uint32_t below_ceiling = s.ceiling_room(lease->owner, {});
  const std::uint32_t room = std::min(s.pool_room(*lease, {}), below_ceiling);
  if (message.num_blocks > room) {
    s.answer(message.key, *lease, Short{room, message.num_blocks > below_ceiling}, effects);
    return;
  }
  Holding& holding = lease->holding;
  for (std::uint32_t i = 0; i < message.num_blocks; ++i) s.take_entry(*lease);
  Extended extended;
  for (const BlockTable& table : holding.tables)
    extended.blocks.emplace_back(table.end() - message.num_blocks, table.end());
  extended.spares = s.give_spares(*lease);
  s.answer(message.key, *lease, std::move(extended), effects);
}

void LeaseBook::commit(const Commit& message, LeaseEffects& effects) {
  State& s = *state_;
  State::Lease* lease = s.next_message(message.key, false, effects);
  if (lease == nullptr) return;
  const std::span<const TokenId> tokens = message.tokens;
  const std::uint32_t num_blocks = full_blocks(tokens);
  Holding& holding = lease->holding;
  TROUPE_ASSERT(lease->phase == State::Phase::held);
  TROUPE_ASSERT(num_blocks > 0 && tokens.size() % kBlockSize == 0);
  TROUPE_ASSERT(message.first_block == holding.num_committed);
  TROUPE_ASSERT(std::size_t{message.first_block} + num_blocks <= holding.tables[0].size());
  // The committed tokens must equal those known at Acquire: a mismatch would put wrong K and V into the shared cache.
  const std::size_t first_token = std::size_t{message.first_block} * kBlockSize;
  if (first_token < lease->tokens->size()) {
    const std::span<const TokenId> known = std::span(*lease->tokens).subspan(first_token);
    TROUPE_ASSERT(common_tokens(known, tokens) == std::min(known.size(), tokens.size()));
  }

  Committed committed;
  committed.first_block = message.first_block;
  for (std::uint32_t i = 0; i < num_blocks; ++i) {
    const BlockTokens block(tokens.data() + std::size_t{i} * kBlockSize, kBlockSize);
    const std::uint32_t index = message.first_block + i;
    s.commit_block(*lease, index, block, message.key.number);
    if (index < lease->prefixes.size())
      s.flights.unclaim(lease->prefixes[index], lease->scopes.publish(), message.key.sequence);
  }
  for (GroupId group = 0; group < s.num_groups(); ++group) {
    if (group > 0) s.commit_attached(group, *lease, message.first_block, message.key.number);
    const auto first = holding.tables[group].begin() + message.first_block;
    committed.blocks.emplace_back(first, first + num_blocks);
  }
  s.commit_snapshot(*lease, message.snapshot);
  committed.spares = s.give_spares(*lease);
  s.answer(message.key, *lease, std::move(committed), effects);
  s.wake_followers(message.key.sequence, *lease, false, effects);
}

// Publishes group 0's block at `index`, or swaps it for an equal one that is in the tree.
void LeaseBook::State::commit_block(Lease& lease, std::uint32_t index, BlockTokens tokens, std::uint32_t number) {
  Holding& holding = lease.holding;
  BlockTable& table = holding.tables[0];
  const BlockId parent = index == 0 ? kRoot : table[index - 1];
  const BlockId own = table[index];
  const BlockId canonical = tree.find_child(parent, lease.scopes, tokens);
  holding.num_committed = index + 1;
  if (canonical == kNoBlock) {
    tree.insert(parent, lease.scopes.publish(), tokens, own);
    ++counters.published;
    return;
  }
  tree.hold(canonical, lease.owner.tenant);
  table[index] = canonical;
  holding.displaced.push_back({number, 0, own});
}

// --- giving back ---

void LeaseBook::yield(const Yield& message, LeaseEffects& effects) {
  State& s = *state_;
  State::Lease* lease = s.next_message(message.key, false, effects);
  if (lease == nullptr) return;
  TROUPE_ASSERT(lease->phase == State::Phase::held);
  s.drop_claims(message.key.sequence, *lease);
  s.answer(message.key, *lease, Acknowledged{}, effects);
  s.wake_followers(message.key.sequence, *lease, true, effects);
}

void LeaseBook::release(const Release& message, LeaseEffects& effects) {
  State& s = *state_;
  const SequenceId sequence = message.key.sequence;
  if (message.key.epoch == s.epoch && s.ended.contains(sequence)) {  // repeated: the answer was lost
    effects.answers.push_back({s.epoch, sequence, message.key.number, Acknowledged{}});
    return;
  }
  State::Lease* lease = s.next_message(message.key, true, effects);
  if (lease == nullptr) return;
  s.ended.insert(sequence);
  effects.answers.push_back({s.epoch, sequence, message.key.number, Acknowledged{}});
  if (lease->phase == State::Phase::waiting) s.leave_leader(sequence, *lease, effects);
  s.drop_claims(sequence, *lease);
  if (message.after_step <= s.last_step) {
    s.give_back(lease->holding);
  } else if (!lease->holding.tables.empty()) {
    s.releasing.push_back({message.after_step, std::move(lease->holding)});
  }
  // Its blocks are given back (or queued in `releasing`) before the first follower is evaluated.
  State::Lease last_words = std::move(*lease);
  s.leases.erase(sequence);
  last_words.inherited.reset();
  s.wake_followers(sequence, last_words, true, effects);
}

// hold and let_go add and remove a reference to a block that is not free, whether it is cached or not.
void LeaseBook::State::hold(GroupId group, BlockId block, TenantId tenant) {
  if (group > 0) {
    attached[group].hold(block, tenant);
  } else if (tree.contains(block)) {
    tree.hold(block, tenant);
  } else {
    pool.retain(block);
  }
}

void LeaseBook::State::let_go(GroupId group, BlockId block) {
  if (group > 0) {
    attached[group].drop(block);
  } else if (tree.contains(block)) {
    tree.drop(block);
  } else {
    pool.release(block);
  }
}

// Deepest first, as RadixTree requires; a block that a fork copied from can be below blocks of the table.
void LeaseBook::State::give_back(const Holding& holding) {
  for (const Displaced& entry : holding.displaced) let_go(entry.group, entry.block);
  for (GroupId group = 0; group < holding.tables.size(); ++group) {
    const BlockTable& table = holding.tables[group];
    for (std::size_t i = table.size(); i-- > 0;)
      if (table[i] != kNoBlock) let_go(group, table[i]);
  }
  if (holding.restore != kNoSnapshot) snapshots.drop(holding.restore);
  for (SnapshotId spare : holding.spares) snapshots.drop(spare);
}

// --- steps and epochs ---

LeaseBook::LeaseBook(LeaseBookOptions options) : state_(std::make_unique<State>(std::move(options))) {}
LeaseBook::~LeaseBook() = default;

void LeaseBook::step_done(std::uint64_t epoch, std::uint64_t step) {
  State& s = *state_;
  if (epoch != s.epoch || step <= s.last_step) return;
  s.last_step = step;
  s.give_back_until(s.releasing, step);
}

void LeaseBook::State::give_back_until(std::vector<Kept>& kept, std::uint64_t until) {
  std::erase_if(kept, [&](const Kept& entry) {
    if (entry.until > until) return false;
    give_back(entry.holding);
    return true;
  });
}

void LeaseBook::begin_epoch(std::uint64_t epoch) {
  State& s = *state_;
  if (epoch <= s.epoch) return;
  for (auto& [sequence, lease] : s.leases)
    if (lease.phase == State::Phase::held) s.orphans.push_back({s.epoch, std::move(lease.holding)});
  for (State::Kept& entry : s.releasing) s.orphans.push_back({s.epoch, std::move(entry.holding)});
  s.leases.clear();
  s.releasing.clear();
  s.flights.clear();
  s.ended.clear();
  s.counters.waiting = 0;
  s.last_step = 0;
  s.epoch = epoch;
}

void LeaseBook::quiesced(std::uint64_t epoch) { state_->give_back_until(state_->orphans, epoch); }

// --- queries ---

PrefixPrediction LeaseBook::predict(const ScopeList& scopes, std::span<const TokenId> tokens) const {
  const State& s = *state_;
  TROUPE_ASSERT(!tokens.empty() && scopes.size() > 0);
  const std::uint32_t limit = servable_blocks(tokens);
  s.tree.match(scopes, tokens, limit, s.path);
  const std::uint32_t num_cached = s.served_blocks(s.path);
  if (num_cached == limit || s.flights.size() == 0) return {num_cached * kBlockSize, 0};
  hash_prefixes(tokens, num_cached + 1, s.prefixes);
  const std::optional<SequenceId> leader = s.leader_of(scopes, tokens, num_cached);
  if (!leader) return {num_cached * kBlockSize, 0};
  const std::uint32_t shared = std::max(num_cached, s.shared_blocks(tokens, *s.leases.at(*leader).tokens));
  return {num_cached * kBlockSize, (shared - num_cached) * kBlockSize};
}

std::optional<CachedRange> LeaseBook::find_recyclable_range(const ScopeList& scopes, std::uint64_t hash) const {
  const State& s = *state_;
  s.tree.find_prefix(scopes, hash, s.path);
  const auto num_blocks = static_cast<std::uint32_t>(s.path.size());
  if (num_blocks == 0 || s.served_blocks(s.path) < num_blocks) return std::nullopt;
  return CachedRange{0, num_blocks * kBlockSize};
}

std::uint64_t LeaseBook::epoch() const { return state_->epoch; }

BlockAccounts::Count LeaseBook::blocks_of(TenantId tenant) const { return state_->pool.accounts().count(tenant); }

CacheCounters LeaseBook::counters() const {
  const State& s = *state_;
  CacheCounters counters = s.counters;
  for (GroupId group = 0; group < s.num_groups(); ++group) counters.groups[group] = s.counters_of(group);
  counters.snapshots = counters_of_ids(s.snapshots);
  return counters;
}

void LeaseBook::check() const {
  const State& s = *state_;
  s.tree.check();
  std::uint32_t num_waiting = 0;
  for (const auto& [sequence, lease] : s.leases) {
    TROUPE_ASSERT(lease.phase == State::Phase::held || lease.holding.tables.empty());
    TROUPE_ASSERT(!s.ended.contains(sequence));
    if (lease.phase != State::Phase::waiting) continue;
    ++num_waiting;
    const State::Lease& leader = s.leases.at(lease.leader);
    TROUPE_ASSERT(leader.phase == State::Phase::held);
    TROUPE_ASSERT(leader.holding.num_committed < lease.shared_blocks);
    TROUPE_ASSERT(std::count(leader.followers.begin(), leader.followers.end(), sequence) == 1);
  }
  TROUPE_ASSERT(num_waiting == s.counters.waiting);
  for (GroupId group = 0; group < s.num_groups(); ++group) s.check_group(group);
  s.check_snapshots();
}

// Checks the reference counts of a group's blocks, and that the tables agree with the tree.
void LeaseBook::State::check_group(GroupId group) const {
  std::vector<std::uint32_t> references(options.groups[group].num_blocks, 0);
  for (BlockId node = 0; node < pool.num_blocks(); ++node) {
    const bool cached = group == 0 ? tree.contains(node) : block_at(group, node) != kNoBlock;
    TROUPE_ASSERT(!cached || tree.contains(node));
    if (cached) ++references[block_at(group, node)];
  }
  for_each_holding([&](const Holding& holding) {
    if (holding.tables.empty()) return;
    const BlockTable& table = holding.tables[group];
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      if (table[i] != kNoBlock) ++references[table[i]];
      TROUPE_ASSERT(tree.contains(holding.tables[0][i]) == (i < holding.num_committed));
    }
    for (const Displaced& entry : holding.displaced)
      if (entry.group == group) ++references[entry.block];
  });
  for (const auto& [sequence, lease] : leases) {
    const Holding& holding = lease.holding;
    if (holding.tables.empty()) continue;
    const BlockTable& table = holding.tables[group];
    TROUPE_ASSERT(table.size() == holding.tables[0].size());
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      TROUPE_ASSERT((table[i] == kNoBlock) == (i < held_begin(group, holding)));
      TROUPE_ASSERT(table[i] == kNoBlock || i >= holding.num_committed ||
                    block_at(group, holding.tables[0][i]) == table[i]);
    }
  }
  for (BlockId block = 0; block < references.size(); ++block)
    TROUPE_ASSERT((group == 0 ? pool.references(block) : attached[group].references(block)) == references[block]);
  attached[group].check();
}

}  // namespace troupe::cache
