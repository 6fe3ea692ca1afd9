#include "cache/lease_book.h"

#include "cache/lease_state.h"

namespace troupe::cache {

LeaseBook::State::State(const LeaseBookOptions& options) : epoch(options.epoch), pool(options.num_blocks), tree(pool) {
  if (!options.await_quiesce) return;
  TROUPE_ASSERT(options.epoch > 0);
  Orphan everything{options.epoch - 1, {}};
  while (pool.num_free() > 0) everything.holding.blocks.push_back(pool.allocate());
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
  std::size_t num_seen = 0;
  while (num_seen < displaced.size() && lease.displaced_by[num_seen] <= seen) let_go(displaced[num_seen++]);
  displaced.erase(displaced.begin(), displaced.begin() + static_cast<std::ptrdiff_t>(num_seen));
  lease.displaced_by.erase(lease.displaced_by.begin(),
                           lease.displaced_by.begin() + static_cast<std::ptrdiff_t>(num_seen));
}

// --- holding ---

BlockId LeaseBook::State::take_block() {
  if (pool.num_free() == 0) {
    tree.evict();
    ++evictions;
    ++version;
  }
  return pool.allocate();
}

void LeaseBook::extend(const Extend& message, LeaseEffects& effects) {
  State& s = *state_;
  State::Lease* lease = s.next_message(message.key, false, effects);
  if (lease == nullptr) return;
  TROUPE_ASSERT(lease->phase == State::Phase::held && message.num_blocks > 0);
  if (message.num_blocks > s.available()) {
    s.answer(message.key, *lease, Short{s.available()}, effects);
    return;
  }
  Extended extended;
  for (std::uint32_t i = 0; i < message.num_blocks; ++i) extended.blocks.push_back(s.take_block());
  auto& blocks = lease->holding.blocks;
  blocks.insert(blocks.end(), extended.blocks.begin(), extended.blocks.end());
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
  // What was known at Acquire must be what was computed: a mismatch would poison the cache for everybody.
  const std::size_t first_token = std::size_t{message.first_block} * kBlockSize;
  if (first_token < lease->tokens->size()) {
    const std::span<const TokenId> known = std::span(*lease->tokens).subspan(first_token);
    TROUPE_ASSERT(common_tokens(known, tokens) == std::min(known.size(), tokens.size()));
  }

  Committed committed{message.first_block, {}};
  for (std::uint32_t i = 0; i < num_blocks; ++i) {
    const BlockTokens block(tokens.data() + std::size_t{i} * kBlockSize, kBlockSize);
    const std::uint32_t index = message.first_block + i;
    committed.blocks.push_back(s.commit_block(*lease, index, block, message.key.number));
    if (index < lease->prefixes.size())
      s.flights.unclaim(lease->prefixes[index], lease->scopes.publish(), message.key.sequence);
  }
  ++s.version;
  s.answer(message.key, *lease, std::move(committed), effects);
  s.wake_followers(message.key.sequence, *lease, false, effects);
}

// Publishes the block at `index`, or swaps it for the equal one that is there already. Returns the canonical one.
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
  holding.displaced.push_back(own);
  lease.displaced_by.push_back(number);
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
  // Its blocks are back (or on their way) before the first follower asks for some.
  State::Lease last_words = std::move(*lease);
  s.leases.erase(sequence);
  last_words.inherited.reset();
  s.wake_followers(sequence, last_words, true, effects);
}

// One reference more or less to a block that has some, whether it is in the tree or not.
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

// Deepest first, as the tree wants it; what was copied from hangs below blocks of the table.
void LeaseBook::State::give_back(const Holding& holding) {
  for (BlockId block : holding.displaced) let_go(block);
  for (std::size_t i = holding.blocks.size(); i-- > 0;) let_go(holding.blocks[i]);
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

// --- looking ---

PrefixPrediction LeaseBook::predict(const ScopeList& scopes, std::span<const TokenId> tokens) const {
  const State& s = *state_;
  TROUPE_ASSERT(!tokens.empty() && scopes.size() > 0);
  const std::uint32_t limit = servable_blocks(tokens);
  s.tree.match(scopes, tokens, limit, s.path);
  const auto num_cached = static_cast<std::uint32_t>(s.path.size());
  if (num_cached == limit || s.flights.size() == 0) return {num_cached * kBlockSize, 0};
  FlightIndex::hash_prefixes(tokens, num_cached + 1, s.prefixes);
  const std::optional<SequenceId> leader = s.leader_of(scopes, tokens, num_cached);
  if (!leader) return {num_cached * kBlockSize, 0};
  const std::uint32_t shared = shared_blocks(tokens, *s.leases.at(*leader).tokens);
  return {num_cached * kBlockSize, (shared - num_cached) * kBlockSize};
}

std::optional<CachedRange> LeaseBook::find_recyclable_range(const ScopeList& scopes, std::uint64_t hash) const {
  const std::uint32_t num_blocks = state_->tree.find_prefix(scopes, hash);
  if (num_blocks == 0) return std::nullopt;
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
  return counters;
}

void LeaseBook::check() const {
  const State& s = *state_;
  s.tree.check();
  std::vector<std::uint32_t> references(s.pool.num_blocks(), 0);
  for (BlockId block = 0; block < references.size(); ++block) references[block] = s.tree.contains(block) ? 1 : 0;
  const auto count = [&](const Holding& holding) {
    for (BlockId block : holding.blocks) ++references[block];
    for (BlockId block : holding.displaced) ++references[block];
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
}

}  // namespace troupe::cache
