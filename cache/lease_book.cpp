#include "cache/lease_book.h"

#include "cache/lease_state.h"

namespace troupe::cache {
namespace {

AttachmentCounters counters_of(const Attachments& attachments) {
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
      pool(options.num_blocks),
      tree(pool),
      windows(options.num_blocks, options.window > 0 ? options.num_window_blocks : 0),
      snapshots(options.num_blocks, options.snapshot_rule.every > 0 ? options.num_snapshots : 0) {
  TROUPE_ASSERT(options.snapshot_rule.every % kBlockSize == 0);
  if (!options.await_quiesce) return;
  TROUPE_ASSERT(options.epoch > 0);
  Orphan everything{options.epoch - 1, {}};
  while (pool.num_free() > 0) everything.holding.blocks.push_back(pool.allocate());
  while (windows.num_free() > 0) everything.holding.window_blocks.push_back(windows.take());
  while (snapshots.num_free() > 0) everything.holding.spares.push_back(snapshots.take());
  orphans.push_back(std::move(everything));
}

LeaseBook::State::~State() {
  for (auto& [sequence, lease] : leases) give_back(lease.holding);
  for (const Releasing& entry : releasing) give_back(entry.holding);
  for (const Orphan& orphan : orphans) give_back(orphan.holding);
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
  for (auto entry = displaced.begin(); entry != unseen; ++entry) let_go(*entry);
  displaced.erase(displaced.begin(), unseen);
}

// --- holding ---

BlockId LeaseBook::State::take_block() {
  if (pool.num_free() == 0) {
    const BlockId evicted = tree.evict();
    windows.detach(evicted);
    snapshots.detach(evicted);
    ++evictions;
    ++version;
  }
  return pool.allocate();
}

// One more entry at the end of the tables.
void LeaseBook::State::take_entry(Holding& holding) {
  holding.blocks.push_back(take_block());
  if (has_windows()) holding.window_blocks.push_back(take_window_block());
}

// How many entries the available blocks (and window blocks) suffice for.
std::uint32_t LeaseBook::State::room() const {
  return has_windows() ? std::min(available(), windows.available()) : available();
}

void LeaseBook::extend(const Extend& message, LeaseEffects& effects) {
  State& s = *state_;
  State::Lease* lease = s.next_message(message.key, false, effects);
  if (lease == nullptr) return;
  TROUPE_ASSERT(lease->phase == State::Phase::held && message.num_blocks > 0);
  if (message.num_blocks > s.room()) {
    s.answer(message.key, *lease, Short{s.room()}, effects);
    return;
  }
  Holding& holding = lease->holding;
  for (std::uint32_t i = 0; i < message.num_blocks; ++i) s.take_entry(holding);
  Extended extended;
  extended.blocks.assign(holding.blocks.end() - message.num_blocks, holding.blocks.end());
  if (s.has_windows())
    extended.window_blocks.assign(holding.window_blocks.end() - message.num_blocks, holding.window_blocks.end());
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
  TROUPE_ASSERT(std::size_t{message.first_block} + num_blocks <= holding.blocks.size());
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
    committed.blocks.push_back(s.commit_block(*lease, index, block, message.key.number));
    if (index < lease->prefixes.size())
      s.flights.unclaim(lease->prefixes[index], lease->scopes.publish(), message.key.sequence);
  }
  if (s.has_windows()) {
    s.commit_window_blocks(holding, message.first_block, message.key.number);
    const auto first = holding.window_blocks.begin() + message.first_block;
    committed.window_blocks.assign(first, first + num_blocks);
  }
  s.commit_snapshot(*lease, message.snapshot);
  committed.spares = s.give_spares(*lease);
  ++s.version;
  s.answer(message.key, *lease, std::move(committed), effects);
  s.wake_followers(message.key.sequence, *lease, false, effects);
}

// Publishes the block at `index`, or swaps it for an equal one that is in the tree. Returns the canonical one.
BlockId LeaseBook::State::commit_block(Lease& lease, std::uint32_t index, BlockTokens tokens, std::uint32_t number) {
  Holding& holding = lease.holding;
  const BlockId parent = index == 0 ? kRoot : holding.blocks[index - 1];
  const BlockId own = holding.blocks[index];
  const BlockId canonical = tree.find_child(parent, lease.scopes, tokens);
  holding.num_committed = index + 1;
  if (canonical == kNoBlock) {
    tree.insert(parent, lease.scopes.publish(), tokens, own);
    ++published;
    return own;
  }
  tree.hold(canonical);
  holding.blocks[index] = canonical;
  holding.displaced.push_back({.number = number, .block = own});
  return canonical;
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
  } else if (!lease->holding.blocks.empty()) {
    s.releasing.push_back({message.after_step, std::move(lease->holding)});
  }
  // Its blocks are given back (or queued in `releasing`) before the first follower is evaluated.
  State::Lease last_words = std::move(*lease);
  s.leases.erase(sequence);
  last_words.inherited.reset();
  s.wake_followers(sequence, last_words, true, effects);
}

// hold and let_go add and remove a reference to a block that is not free, whether it is in the tree or not.
void LeaseBook::State::hold(BlockId block) {
  if (tree.contains(block)) {
    tree.hold(block);
  } else {
    pool.retain(block);
  }
}

void LeaseBook::State::let_go(BlockId block) {
  if (tree.contains(block)) {
    tree.drop(block);
  } else {
    pool.release(block);
  }
}

void LeaseBook::State::let_go(const Displaced& entry) {
  if (entry.block != kNoBlock) let_go(entry.block);
  if (entry.window_block != kNoBlock) windows.drop(entry.window_block);
}

// Deepest first, as RadixTree requires; a block that a fork copied from can be below blocks of the table.
void LeaseBook::State::give_back(const Holding& holding) {
  for (const Displaced& entry : holding.displaced) let_go(entry);
  for (std::size_t i = holding.blocks.size(); i-- > 0;) let_go(holding.blocks[i]);
  give_back_attachments(holding);
}

// --- steps and epochs ---

LeaseBook::LeaseBook(LeaseBookOptions options) : state_(std::make_unique<State>(options)) {}
LeaseBook::~LeaseBook() = default;

void LeaseBook::step_done(std::uint64_t epoch, std::uint64_t step) {
  State& s = *state_;
  if (epoch != s.epoch || step <= s.last_step) return;
  s.last_step = step;
  std::erase_if(s.releasing, [&](const State::Releasing& entry) {
    if (entry.after_step > step) return false;
    s.give_back(entry.holding);
    return true;
  });
}

void LeaseBook::begin_epoch(std::uint64_t epoch) {
  State& s = *state_;
  if (epoch <= s.epoch) return;
  for (auto& [sequence, lease] : s.leases)
    if (lease.phase == State::Phase::held) s.orphans.push_back({s.epoch, std::move(lease.holding)});
  for (State::Releasing& entry : s.releasing) s.orphans.push_back({s.epoch, std::move(entry.holding)});
  s.leases.clear();
  s.releasing.clear();
  s.flights.clear();
  s.ended.clear();
  s.num_waiting = 0;
  s.last_step = 0;
  s.epoch = epoch;
  ++s.version;
}

void LeaseBook::quiesced(std::uint64_t epoch) {
  State& s = *state_;
  std::erase_if(s.orphans, [&](const State::Orphan& orphan) {
    if (orphan.epoch > epoch) return false;
    s.give_back(orphan.holding);
    return true;
  });
}

// --- queries ---

PrefixPrediction LeaseBook::predict(const ScopeList& scopes, std::span<const TokenId> tokens) const {
  const State& s = *state_;
  TROUPE_ASSERT(!tokens.empty() && scopes.size() > 0);
  const std::uint32_t limit = servable_blocks(tokens);
  s.tree.match(scopes, tokens, limit, s.path);
  const std::uint32_t num_cached = s.served_blocks(s.path);
  if (num_cached == limit || s.flights.size() == 0) return {num_cached * kBlockSize, 0};
  FlightIndex::hash_prefixes(tokens, num_cached + 1, s.prefixes);
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

std::uint64_t LeaseBook::version() const { return state_->version; }
std::uint64_t LeaseBook::epoch() const { return state_->epoch; }

CacheCounters LeaseBook::counters() const {
  const State& s = *state_;
  CacheCounters counters;
  counters.total = s.pool.num_blocks();
  counters.free = s.pool.num_free();
  counters.cached = s.tree.num_blocks();
  counters.available = s.available();
  counters.referenced = counters.total - counters.available;
  counters.published = s.published;
  counters.evictions = s.evictions;
  counters.query_tokens = s.query_tokens;
  counters.hit_tokens = s.hit_tokens;
  counters.waiting = s.num_waiting;
  counters.window_blocks = counters_of(s.windows);
  counters.snapshots = counters_of(s.snapshots);
  counters.snapshot_hits = s.snapshot_hits;
  return counters;
}

void LeaseBook::check() const {
  const State& s = *state_;
  s.tree.check();
  std::vector<std::uint32_t> references(s.pool.num_blocks(), 0);
  for (BlockId block = 0; block < references.size(); ++block) references[block] = s.tree.contains(block) ? 1 : 0;
  const auto count = [&](const Holding& holding) {
    for (BlockId block : holding.blocks) ++references[block];
    for (const Displaced& entry : holding.displaced)
      if (entry.block != kNoBlock) ++references[entry.block];
    for (std::size_t i = 0; i < holding.blocks.size(); ++i)
      TROUPE_ASSERT(s.tree.contains(holding.blocks[i]) == (i < holding.num_committed));
  };
  std::uint32_t num_waiting = 0;
  for (const auto& [sequence, lease] : s.leases) {
    TROUPE_ASSERT(lease.phase == State::Phase::held || lease.holding.blocks.empty());
    TROUPE_ASSERT(!s.ended.contains(sequence));
    count(lease.holding);
    if (lease.phase != State::Phase::waiting) continue;
    ++num_waiting;
    const State::Lease& leader = s.leases.at(lease.leader);
    TROUPE_ASSERT(leader.phase == State::Phase::held);
    TROUPE_ASSERT(leader.holding.num_committed < lease.shared_blocks);
    TROUPE_ASSERT(std::count(leader.followers.begin(), leader.followers.end(), sequence) == 1);
  }
  for (const State::Releasing& entry : s.releasing) count(entry.holding);
  for (const State::Orphan& orphan : s.orphans) count(orphan.holding);
  TROUPE_ASSERT(num_waiting == s.num_waiting);
  for (BlockId block = 0; block < references.size(); ++block)
    TROUPE_ASSERT(s.pool.references(block) == references[block]);
  s.check_attachments();
}

}  // namespace troupe::cache
