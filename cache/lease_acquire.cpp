// Acquire, and waiting for a sequence that computes the same prefix. The rest of LeaseBook is in lease_book.cpp and
// lease_attachments.cpp.
#include "cache/lease_state.h"

namespace troupe::cache {

void LeaseBook::acquire(const Acquire& message, LeaseEffects& effects) {
  State::Lease* lease = state_->next_message(message.key, true, effects);
  if (lease == nullptr) return;
  TROUPE_ASSERT(lease->phase == State::Phase::idle);
  TROUPE_ASSERT(message.tokens != nullptr && !message.tokens->empty() && message.scopes.size() > 0);
  lease->rank = message.rank;
  lease->scopes = message.scopes;
  lease->tokens = message.tokens;
  lease->want = message.want;
  lease->headroom = message.headroom;
  lease->fork = message.fork;
  lease->owner = message.owner;
  lease->own_headroom = message.own_headroom;
  state_->pool.accounts().set_floor(message.owner);
  lease->filled = message.filled;
  lease->computes_all = message.computes_all;
  state_->evaluate(message.key.sequence, *lease, effects);
}

// Answers an Acquire: a new one, or one that need not wait for its leader any more.
void LeaseBook::State::evaluate(SequenceId sequence, Lease& lease, LeaseEffects& effects) {
  const std::span<const TokenId> tokens = *lease.tokens;
  tree.match(lease.scopes, tokens, servable_blocks(tokens), path);
  path.resize(lease.computes_all ? 0 : served_blocks(path));
  const std::optional<Tail> tail = lease.computes_all ? std::nullopt : follow_parent(lease);
  if (!lease.computes_all && !tail && follow_leader(sequence, lease, effects)) return;

  const bool copies = tail && tail->num_tokens > 0;
  const auto num_cached = static_cast<std::uint32_t>(path.size());
  const std::uint32_t want = std::max(lease.want, num_cached + (copies ? 1 : 0));
  const std::uint32_t num_private = want - num_cached;
  const std::uint32_t in_pool = pool_room(lease, path), below_ceiling = ceiling_room(lease.owner, path);
  const auto exceeds = [&](std::uint32_t headroom, std::uint32_t room) {
    return num_private + headroom > 0 && std::uint64_t{num_private} + headroom > room;
  };
  const bool at_ceiling = exceeds(lease.own_headroom, below_ceiling);
  if (at_ceiling || exceeds(lease.headroom, in_pool)) {
    settle(sequence, lease, Phase::idle, Short{std::min(in_pool, below_ceiling), at_ceiling}, effects);
    return;
  }
  Holding& holding = lease.holding;
  holding.num_committed = num_cached;
  holding.filled = lease.filled;
  hold_prefix(path, lease);
  Acquired acquired;
  acquired.num_cached_tokens = num_cached * kBlockSize;
  if (copies) {  // before anything is evicted
    for (GroupId group = 0; group < num_groups(); ++group) {
      hold(group, tail->blocks[group], lease.owner.tenant);
      holding.displaced.push_back({lease.last_number, group, tail->blocks[group]});
    }
    acquired.num_copied_tokens = tail->num_tokens;
    acquired.copy_from = tail->blocks;
  }
  for (std::uint32_t i = 0; i < num_private; ++i) take_entry(lease);
  if (holding.restore != kNoSnapshot) ++counters.snapshot_hits;
  acquired.tables = holding.tables;
  acquired.restore = holding.restore;
  acquired.spares = give_spares(lease);

  hash_prefixes(tokens, full_blocks(tokens), lease.prefixes);
  for (std::uint32_t i = num_cached; i < lease.prefixes.size(); ++i)
    flights.claim(lease.prefixes[i], lease.scopes.publish(), sequence);
  settle(sequence, lease, Phase::held, std::move(acquired), effects);
}

// The blocks that a fork takes over: `path` becomes the parent's full blocks; returns the part-full ones. Nothing, and
// `path` (the cached prefix) unchanged, if the parent does not hold these blocks committed (any more), if `path` is
// longer, or if the model has recurrent state.
std::optional<LeaseBook::State::Tail> LeaseBook::State::follow_parent(const Lease& lease) const {
  if (!lease.fork || has_state()) return std::nullopt;
  const auto found = leases.find(lease.fork->parent);
  if (found == leases.end() || found->second.phase != Phase::held) return std::nullopt;
  const Lease& parent = found->second;
  const std::span<const TokenId> tokens = *lease.tokens;
  TROUPE_ASSERT(std::equal(lease.scopes.begin(), lease.scopes.end(), parent.scopes.begin(), parent.scopes.end()));
  // As far as the parent's tokens are known here they are compared, as in a Commit.
  TROUPE_ASSERT(common_tokens(tokens, *parent.tokens) >=
                std::min<std::size_t>({lease.fork->num_tokens, tokens.size(), parent.tokens->size()}));
  const auto servable = std::min(lease.fork->num_tokens, static_cast<std::uint32_t>(tokens.size() - 1));
  const std::uint32_t num_shared = servable / kBlockSize;
  const BlockTable& table = parent.holding.tables[0];
  if (parent.holding.num_committed < num_shared || num_shared < path.size()) return std::nullopt;
  const std::span<const BlockId> shared = std::span(table).first(num_shared);
  if (served_blocks(shared) < num_shared) return std::nullopt;  // the parent is past the window
  path.assign(shared.begin(), shared.end());
  if (servable % kBlockSize == 0 || num_shared == table.size()) return Tail{};
  Tail tail{.blocks = {}, .num_tokens = servable % kBlockSize};
  for (const BlockTable& of_group : parent.holding.tables) {
    if (of_group[num_shared] == kNoBlock) return Tail{};
    tail.blocks.push_back(of_group[num_shared]);
  }
  return tail;
}

// Makes the lease wait if another sequence computes the block after `path`, the cached prefix.
bool LeaseBook::State::follow_leader(SequenceId sequence, Lease& lease, LeaseEffects& effects) {
  const std::span<const TokenId> tokens = *lease.tokens;
  const auto num_cached = static_cast<std::uint32_t>(path.size());
  if (num_cached >= servable_blocks(tokens)) return false;
  hash_prefixes(tokens, num_cached + 1, prefixes);
  const std::optional<SequenceId> found = leader_of(lease.scopes, tokens, num_cached);
  if (!found) return false;

  Lease& leader = leases.at(*found);
  const std::uint32_t shared = shared_blocks(tokens, *leader.tokens);
  if (shared <= num_cached) return false;
  lease.leader = *found;
  lease.shared_blocks = shared;
  leader.followers.push_back(sequence);
  if (lease.phase == Phase::waiting) {
    lease.unseen.back().body = Wait{*found};  // for a repeated Acquire; a change of leader is not reported otherwise
  } else {
    lease.phase = Phase::waiting;
    ++counters.waiting;
    answer({epoch, sequence, lease.last_number, 0}, lease, Wait{*found}, effects);
  }
  update_inheritance(*found, leader, effects);
  return true;
}

// The sequence that computes block `block` of these tokens; `prefixes` has their hashes up to that block.
std::optional<SequenceId> LeaseBook::State::leader_of(const ScopeList& scopes, std::span<const TokenId> tokens,
                                                      std::uint32_t block) const {
  const std::optional<SequenceId> found = flights.find(prefixes[block], scopes);
  if (!found) return std::nullopt;
  const std::size_t end = (std::size_t{block} + 1) * kBlockSize;
  if (common_tokens(*leases.at(*found).tokens, tokens.first(end)) < end) return std::nullopt;
  return found;
}

// Gives the final answer to an Acquire, in place of a Wait if there was one.
void LeaseBook::State::settle(SequenceId sequence, Lease& lease, Phase phase, LeaseAnswer::Body body,
                              LeaseEffects& effects) {
  if (lease.phase == Phase::waiting) {
    lease.unseen.pop_back();
    --counters.waiting;
  }
  lease.phase = phase;
  answer({epoch, sequence, lease.last_number, 0}, lease, std::move(body), effects);
}

void LeaseBook::State::leave_leader(SequenceId sequence, Lease& lease, LeaseEffects& effects) {
  Lease& leader = leases.at(lease.leader);
  std::erase(leader.followers, sequence);
  --counters.waiting;
  update_inheritance(lease.leader, leader, effects);
}

void LeaseBook::State::update_inheritance(SequenceId sequence, Lease& lease, LeaseEffects& effects) {
  std::optional<Rank> best;
  for (SequenceId follower : lease.followers) {
    const Rank rank = leases.at(follower).rank;
    if (!best || rank < *best) best = rank;
  }
  if (best == lease.inherited) return;
  lease.inherited = best;
  effects.inherited.push_back({sequence, best});
}

// Evaluates waiting Acquires again: of all followers, or of those for which the leader has committed all shared blocks.
void LeaseBook::State::wake_followers(SequenceId leader, Lease& lease, bool all, LeaseEffects& effects) {
  if (lease.followers.empty()) return;
  const auto may_go = [&](SequenceId follower) {
    return all || leases.at(follower).shared_blocks <= lease.holding.num_committed;
  };
  const auto by_rank = [this](SequenceId a, SequenceId b) { return leases.at(a).rank < leases.at(b).rank; };
  std::sort(lease.followers.begin(), lease.followers.end(), by_rank);
  const auto staying = std::stable_partition(lease.followers.begin(), lease.followers.end(), may_go);
  const std::vector<SequenceId> going(lease.followers.begin(), staying);
  lease.followers.erase(lease.followers.begin(), staying);
  // The first by rank may lead from now on, and the next ones then follow it.
  for (SequenceId follower : going) evaluate(follower, leases.at(follower), effects);
  update_inheritance(leader, lease, effects);
}

void LeaseBook::State::drop_claims(SequenceId sequence, Lease& lease) {
  for (std::uint64_t prefix : lease.prefixes) flights.unclaim(prefix, lease.scopes.publish(), sequence);
  lease.prefixes.clear();
}

}  // namespace troupe::cache
