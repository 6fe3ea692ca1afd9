// The private state of LeaseBook, included by its three source files only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/attachments.h"
#include "cache/block_pool.h"
#include "cache/flight_index.h"
#include "cache/id_set.h"
#include "cache/lease_book.h"
#include "cache/radix_tree.h"
#include "config/assert.h"

namespace troupe::cache {

// Blocks of `tokens` that may be served from the cache: never the one with the last token, whose logits are needed.
inline std::uint32_t servable_blocks(std::span<const TokenId> tokens) {
  return static_cast<std::uint32_t>((tokens.size() - 1) / kBlockSize);
}

inline std::uint32_t full_blocks(std::span<const TokenId> tokens) {
  return static_cast<std::uint32_t>(tokens.size() / kBlockSize);
}

// How many leading tokens are equal.
inline std::size_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

// A block that is not in a block table but that a planned step may still read: replaced by the canonical one, or the
// source of a fork's copy.
struct Displaced {
  std::uint32_t number = 0;  // of the message that replaced or copied it
  GroupId group = 0;
  BlockId block = kNoBlock;
};

// The blocks and snapshots that a lease holds. The first num_committed entries of the tables are published.
struct Holding {
  BlockTables tables;  // all of the same length, kNoBlock before a window; empty: holds nothing
  std::uint32_t num_committed = 0;
  std::vector<Displaced> displaced;  // by ascending number
  SnapshotId restore = kNoSnapshot;  // until it is known to have been read
  std::vector<SnapshotId> spares;
  std::uint32_t filled = 0;  // Acquire::filled
};

struct LeaseBook::State {
  enum class Phase : std::uint8_t { idle, waiting, held };

  struct Lease {
    Phase phase = Phase::idle;
    std::uint32_t last_number = 0;
    std::deque<LeaseAnswer> unseen;  // answers kept in case the sender repeats the message, by number
    Rank rank;
    ScopeList scopes;
    Tokens tokens;
    std::uint32_t want = 0;
    std::uint32_t headroom = 0;
    std::optional<Fork> fork;
    Owner owner;
    std::uint32_t own_headroom = 0;
    bool computes_all = false;  // Acquire::computes_all
    std::uint32_t filled = 0;
    // held
    Holding holding;
    std::vector<std::uint64_t> prefixes;  // hashes of the full blocks in `tokens`; empty: claims nothing
    std::vector<SequenceId> followers;
    std::optional<Rank> inherited;  // as last reported in LeaseEffects
    // waiting
    SequenceId leader = 0;
    std::uint32_t shared_blocks = 0;  // with the leader; runnable when it has committed these
  };
  // The holding of a lease that has ended, given back once no step can write its blocks any more.
  struct Kept {
    std::uint64_t until;  // this step is done, or this epoch quiesced
    Holding holding;
  };

  explicit State(const LeaseBookOptions& book_options);
  ~State();

  // If the message is the next of its sequence: applies `seen` and returns the lease. Else null; a repeated message
  // gets the answer it got before.
  Lease* next_message(const LeaseKey& key, bool may_begin, LeaseEffects& effects);
  void see(Lease& lease, std::uint32_t seen);
  template <class Body>
  void answer(const LeaseKey& key, Lease& lease, Body body, LeaseEffects& effects);

  // The part-full blocks that a fork copies: `path` has the full ones before them.
  struct Tail {
    std::vector<BlockId> blocks;  // by group; empty: there is nothing to copy
    std::uint32_t num_tokens = 0;
  };
  void evaluate(SequenceId sequence, Lease& lease, LeaseEffects& effects);
  std::optional<Tail> follow_parent(const Lease& lease) const;
  bool follow_leader(SequenceId sequence, Lease& lease, LeaseEffects& effects);
  [[nodiscard]] std::optional<SequenceId> leader_of(const ScopeList& scopes, std::span<const TokenId> tokens,
                                                    std::uint32_t block) const;
  void settle(SequenceId sequence, Lease& lease, Phase phase, LeaseAnswer::Body body, LeaseEffects& effects);
  void leave_leader(SequenceId sequence, Lease& lease, LeaseEffects& effects);
  void update_inheritance(SequenceId sequence, Lease& lease, LeaseEffects& effects);
  void wake_followers(SequenceId leader, Lease& lease, bool all, LeaseEffects& effects);
  void drop_claims(SequenceId sequence, Lease& lease);

  [[nodiscard]] GroupId num_groups() const { return static_cast<GroupId>(options.groups.size()); }
  [[nodiscard]] PoolCounters counters_of(GroupId group) const;
  // The group's block at a radix node, kNoBlock if there is none, and whether a sequence holds it.
  [[nodiscard]] BlockId block_at(GroupId group, BlockId node) const;
  [[nodiscard]] bool held_at(GroupId group, BlockId node) const;
  [[nodiscard]] std::uint32_t pool_room(const Lease& lease, std::span<const BlockId> nodes) const;
  [[nodiscard]] std::uint32_t ceiling_room(const Owner& owner, std::span<const BlockId> nodes) const;
  [[nodiscard]] bool runs_alone(const Lease& lease) const;
  void was_evicted(BlockId node);
  BlockId take(GroupId group, const Owner& owner);
  void take_entry(Lease& lease);
  void commit_block(Lease& lease, std::uint32_t index, BlockTokens tokens, std::uint32_t number);
  void hold(GroupId group, BlockId block, TenantId tenant);
  void let_go(GroupId group, BlockId block);
  void give_back(const Holding& holding);
  void give_back_until(std::vector<Kept>& kept, std::uint64_t until);
  // Calls fn(holding) for those of all leases, live or ended.
  template <class Fn>
  void for_each_holding(const Fn& fn) const {
    for (const auto& [sequence, lease] : leases) fn(lease.holding);
    for (const Kept& kept : releasing) fn(kept.holding);
    for (const Kept& kept : orphans) fn(kept.holding);
  }
  void check_group(GroupId group) const;

  // Attachments (lease_attachments.cpp).
  [[nodiscard]] bool has_state() const { return options.snapshot_rule.every > 0; }
  [[nodiscard]] std::uint32_t window_begin(GroupId group, std::size_t num_blocks) const;
  [[nodiscard]] std::uint32_t held_begin(GroupId group, const Holding& holding) const;
  [[nodiscard]] std::uint32_t served_blocks(std::span<const BlockId> nodes) const;
  [[nodiscard]] std::uint32_t shared_blocks(std::span<const TokenId> tokens, std::span<const TokenId> leader) const;
  void hold_prefix(std::span<const BlockId> nodes, Lease& lease);
  void commit_attached(GroupId group, Lease& lease, std::uint32_t first_block, std::uint32_t number);
  void commit_snapshot(Lease& lease, SnapshotId snapshot);
  std::vector<SnapshotId> give_spares(Lease& lease);
  void check_snapshots() const;

  const LeaseBookOptions options;
  std::uint64_t epoch;
  std::uint64_t last_step = 0;
  BlockPool pool;  // of group 0, whose blocks are the radix nodes
  RadixTree tree;
  std::deque<Attachments> attached;  // by group: the blocks of the others; attached[0] has no ids
  Attachments snapshots;
  FlightIndex flights;
  std::unordered_map<SequenceId, Lease> leases;
  IdSet ended;
  std::vector<Kept> releasing;  // until a step of this epoch
  std::vector<Kept> orphans;    // until an epoch has quiesced
  CacheCounters counters;       // `groups` and `snapshots` are filled by LeaseBook::counters()
  std::uint64_t evictions = 0;
  mutable std::vector<BlockId> path;            // scratch
  mutable std::vector<std::uint64_t> prefixes;  // scratch
};

// Answers, and stores the answer in case the message is repeated.
template <class Body>
void LeaseBook::State::answer(const LeaseKey& key, Lease& lease, Body body, LeaseEffects& effects) {
  lease.unseen.push_back({key.epoch, key.sequence, key.number, std::move(body)});
  effects.answers.push_back(lease.unseen.back());
}

}  // namespace troupe::cache
