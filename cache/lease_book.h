// Which sequence holds which KV blocks: the one authority over the block pool and the prefix tree of a model.
//
// Plain logic: no thread, no clock. The cache keeper calls it with messages as they arrive and sends on what it
// returns; every message may arrive twice or late, and its sender may terminate at any point.
//
// The life of a sequence, as the batcher sees it
//
//   Acquire{tokens, want}   -> Acquired{num_cached_tokens, tables}: `tables` are the whole block tables so far, the
//                              cached prefix first, then `want` blocks less what was cached (see `want`).
//                           -> Wait{leader}: `leader` is computing the same prefix. Nothing is held. The real
//                              answer to this same number comes later, unasked, among the answers that some
//                              other sequence's Commit, Yield or Release brings.
//                           -> Short{available}: not enough blocks. Nothing is held; ask again (under the next
//                              number) when blocks were given back, or Release.
//                              With `fork` the table begins with what another running sequence has computed, up to
//                              any position: full blocks are shared, and of the one that is part full the caller
//                              makes a copy (copy-on-write at the only block that either of them still writes to).
//   Extend{num_blocks}      -> Extended{blocks} to append to the tables, or Short{available}: all or nothing.
//                              Short{at_ceiling} says that the tenant of the sequence has too many blocks in use, not
//                              that the pool has too few: only sequences of this tenant can give some back.
//   Commit{first, tokens}   -> Committed{first_block, blocks}. Sent only after the StepResult of the step that
//                              filled the blocks; generated tokens as well as prompt. Publishes them in the tree.
//                              The answer names the canonical block of each: where it differs from the sender's,
//                              another sequence published the same tokens first (equal bits), and the sender swaps its
//                              entry before it plans its next step.
//   Yield{}                 -> Acknowledged. The sequence stops computing for a while (parked): its followers wait
//                              no longer. It keeps its blocks.
//   Release{after_step}     -> Acknowledged. The end of this sequence id: finished, cancelled or preempted alike.
//                              Its blocks come back when step `after_step` is done, at once if it already is.
//
// Tenants (block_accounts.h). Each Acquire names the tenant of its sequence, with a floor and a ceiling in blocks of
// group 0. Blocks count for the tenant they were given to, those that several tenants use for none. Before a tenant
// gets more blocks than its ceiling, cached ones of its own are evicted. For a tenant nothing is evicted that is within
// the floor of another, as long as sequences other than the one that asks hold blocks: one that runs alone gets every
// block, so that it always ends. The last floor that was given counts, and for each sequence the ceiling that came with
// it.
//
// Groups and recurrent state (group.h, attachments.h). A sequence has one table per cache group, all of the same
// length; the blocks of one index are given out, published and swapped together. The blocks of group 0, which must have
// no window, are the nodes of the prefix tree. At a Commit the book takes back blocks that no later position attends
// to; the sender sets those entries to kNoBlock when it sends the Commit (leave_window_behind). Where there is
// recurrent state, Acquired names the snapshot to restore before the first step, `restore`. Answers bring `spares`:
// snapshots that the sequence may write, at the next boundaries of SnapshotRule that its table reaches. A step that
// ends at a boundary writes one (any that the sender has and has not used), and the Commit up to there names it. A
// spare that is not used comes back with the Release. Without a spare, because all snapshots are in use, the boundary
// gets no snapshot. A prefix is served only up to where the blocks of all groups and a snapshot allow to resume: see
// served_blocks in lease_attachments.cpp. For a model with recurrent state a fork is treated as a plain Acquire.
//
// A preempted request comes back as a new sequence id (ids are never reused), with prompt and generated tokens
// as its `tokens` and its old rank. Sequence ids come from one counter, taken when Acquire is first sent: ended
// ids are remembered as ranges, so a dense numbering costs no memory.
//
// Numbers. Each sequence numbers its messages 1, 2, 3, ... A repeated number gets the answer it got; a number
// that skips one is dropped unanswered, so a sender that has no answer simply repeats what it sent, in order.
// `seen` says up to which number the sender has applied the answers to its block table; older answers are
// forgotten, and blocks that a Commit replaced stay leased until then, because a step planned before the sender applied
// the swap still reads them. A Wait is not applied: what counts is the answer that follows it. Messages may be
// pipelined: waiting for each answer is not needed. Answers come in the order of the numbers; one that is not above
// `seen` is a repetition and ignored.
//
// Steps and restarts. Steps run in the order of their numbers. step_done(epoch, step) is called after each
// StepResult, before the messages that the result causes. A new batcher calls begin_epoch with a higher number:
// messages of older epochs are dropped, waiting Acquires of old epochs are forgotten, and blocks that an old epoch held
// are not reused until quiesced(epoch): the worker's promise that no step of that epoch or an older one will write
// any more. Published prefixes survive. A restarted keeper builds its book with `await_quiesce`: no block is given out
// until then.
//
// Single flight. While a sequence computes prompt blocks that are not cached (it leads), later Acquires that would need
// the very next of these blocks wait, holding nothing. Each is answered as soon as all it shares with the leader is
// committed; if the leader ends or yields first, the first follower by rank leads. `inherited` in the effects
// is the rank that the planner must give the leader so that no follower waits for a less urgent sequence.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "cache/block_accounts.h"
#include "cache/group.h"
#include "cache/ids.h"
#include "cache/prefix_hash.h"
#include "cache/rank.h"
#include "cache/scope.h"
#include "cache/snapshot_rule.h"

namespace troupe::cache {

using Tokens = std::shared_ptr<const std::vector<TokenId>>;

// The first member of every message.
struct LeaseKey {
  std::uint64_t epoch = 0;
  SequenceId sequence = 0;
  std::uint32_t number = 0;  // 1 for the sequence's first message, then one more each
  std::uint32_t seen = 0;    // answers up to this number have been applied by the sender
};

// Begins a sequence with the blocks of another one: n answers from one prefill. Served while the parent holds its
// blocks and has committed the full ones; later, the same Acquire is served from the tree like any other.
struct Fork {
  SequenceId parent = 0;         // of the same scopes (asserted)
  std::uint32_t num_tokens = 0;  // of the tokens, computed by the parent and equal to its own first ones
};

struct Acquire {
  LeaseKey key;
  Rank rank;
  ScopeList scopes;
  Tokens tokens;           // all known ids, prompt and (after a preemption) generated; at least one
  std::uint32_t want = 0;  // blocks the table should have, cached ones included; more are never refused if cached
  // Short unless this many more blocks stay available for the growth of other sequences. 0 when no other sequence runs,
  // or the only waiting request might never start.
  std::uint32_t headroom = 0;
  std::optional<Fork> fork{};  // a fork that is served never waits
  Owner owner{};
  std::uint32_t own_headroom = 0;  // as headroom, below the owner's ceiling for the growth of its other sequences
  // The sender has K and V of so many tokens elsewhere and copies them, of a group with a window only those that
  // position `filled` attends to: entries before are kNoBlock, and nothing is published for them. Steps compute
  // positions from `filled` on only, unless more are cached.
  std::uint32_t filled = 0;
  // Nothing is served from the cache, and no sequence is followed: the sender computes every token. What it commits is
  // published, or swapped, as usual.
  bool computes_all = false;
};

struct Extend {
  LeaseKey key;
  std::uint32_t num_blocks = 0;  // more of them, >= 1
};

struct Commit {
  LeaseKey key;
  std::uint32_t first_block = 0;      // index in the block table: the first that is not committed (or cached) yet
  std::vector<TokenId> tokens;        // of whole blocks, a positive multiple of kBlockSize
  SnapshotId snapshot = kNoSnapshot;  // one of the spares, if a step wrote it at the end of these tokens
};

struct Yield {
  LeaseKey key;
};

struct Release {
  LeaseKey key;
  std::uint64_t after_step = 0;  // the last step planned with this sequence; 0: none was
};

struct Acquired {
  std::uint32_t num_cached_tokens = 0;  // a multiple of kBlockSize, less than tokens->size()
  // The first num_cached_tokens / kBlockSize entries are filled; kNoBlock before a group's window.
  BlockTables tables;
  // A fork: before the first step of this sequence entry num_cached_tokens / kBlockSize of each group's table is to be
  // made a copy of the group's block in `copy_from`, of which the first num_copied_tokens slots are filled. That block
  // is not reused before the sender has seen this answer, so copying it in the next step's work is in time.
  std::uint32_t num_copied_tokens = 0;  // < kBlockSize
  std::vector<BlockId> copy_from{};     // by group; empty: nothing to copy
  // The state after the first num_cached_tokens; kNoSnapshot if there are none. It stays until the sequence's first
  // Commit or its Release.
  SnapshotId restore = kNoSnapshot;
  std::vector<SnapshotId> spares{};  // new ones, as in the other answers; mostly none
  friend bool operator==(const Acquired&, const Acquired&) = default;
};
struct Wait {
  SequenceId leader = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};
struct Short {
  // Blocks that this tenant could be given now, free or cached without holders, of the group with the fewest.
  std::uint32_t available = 0;
  bool at_ceiling = false;  // the tenant's other sequences, or its cached prefix, leave too few below its ceiling
  friend bool operator==(const Short&, const Short&) = default;
};
struct Extended {
  BlockTables blocks;
  std::vector<SnapshotId> spares{};
  friend bool operator==(const Extended&, const Extended&) = default;
};
struct Committed {
  std::uint32_t first_block = 0;
  BlockTables blocks;  // kNoBlock where a group's window has passed
  std::vector<SnapshotId> spares{};
  friend bool operator==(const Committed&, const Committed&) = default;
};
struct Acknowledged {
  friend bool operator==(const Acknowledged&, const Acknowledged&) = default;
};

struct LeaseAnswer {
  using Body = std::variant<Acquired, Wait, Short, Extended, Committed, Acknowledged>;
  std::uint64_t epoch = 0;
  SequenceId sequence = 0;
  std::uint32_t number = 0;
  Body body;
};

// The best rank among the followers of `sequence`, which inherits it; none: it has no followers any more.
struct Inheritance {
  SequenceId sequence = 0;
  std::optional<Rank> rank;
};

// The effects of a call, appended in order. The caller clears and reuses it.
struct LeaseEffects {
  std::vector<LeaseAnswer> answers;  // to the batcher; also for other sequences than the message's
  std::vector<Inheritance> inherited;
  void clear() {
    answers.clear();
    inherited.clear();
  }
};

// How many of a request's tokens need not be computed: for the order of admission.
struct PrefixPrediction {
  std::uint32_t cached_tokens = 0;     // in the tree now
  std::uint32_t in_flight_tokens = 0;  // of the tokens after these, being computed by a leader now
};

// Of a group's blocks, or of the snapshots.
struct PoolCounters {
  std::uint32_t total = 0;
  std::uint32_t free = 0;
  std::uint32_t cached = 0;     // at radix nodes, held or not
  std::uint32_t available = 0;  // free, or cached without holders
  std::uint64_t evictions = 0;

  // Held by sequences (running, or awaiting the end of their last step).
  [[nodiscard]] std::uint32_t referenced() const { return total - available; }
};

struct CacheCounters {
  std::array<PoolCounters, kMaxGroups> groups;  // all 0 for groups that the model does not have
  PoolCounters snapshots;
  std::uint64_t published = 0;      // blocks of group 0 that entered the tree
  std::uint32_t waiting = 0;        // sequences that wait for a leader
  std::uint64_t snapshot_hits = 0;  // granted Acquires that begin at a snapshot
};

struct LeaseBookOptions {
  // At least one, at most kMaxGroups, the first without a window (asserted). most_window_blocks(window) blocks of a
  // group with a window are enough for one sequence of any length.
  std::vector<Group> groups;
  std::uint64_t epoch = 1;       // the first; messages of lower ones are dropped
  bool await_quiesce = false;    // nothing is given out before quiesced(epoch - 1)
  SnapshotRule snapshot_rule{};  // every = 0: no layer has recurrent state
  std::uint32_t num_snapshots = 0;
};

class LeaseBook {
 public:
  explicit LeaseBook(LeaseBookOptions options);
  // May run while leases are out (the process is ending); it releases their blocks.
  ~LeaseBook();
  LeaseBook(const LeaseBook&) = delete;
  LeaseBook& operator=(const LeaseBook&) = delete;

  // Messages; the protocol is above. O(tokens) for Acquire and Commit, O(blocks) for Extend and Release, plus expected
  // O(log tenants) for each block given out, evicted or given back, plus an Acquire for each follower that is answered.
  // What contradicts the protocol within the right epoch and number (a Commit beyond the table, an Extend by 0 blocks)
  // is our own bug and asserted.
  void acquire(const Acquire& message, LeaseEffects& effects);
  void extend(const Extend& message, LeaseEffects& effects);
  void commit(const Commit& message, LeaseEffects& effects);
  void yield(const Yield& message, LeaseEffects& effects);
  void release(const Release& message, LeaseEffects& effects);

  // Every step up to `step` of this epoch has ended. Steps of other epochs are ignored: see quiesced().
  void step_done(std::uint64_t epoch, std::uint64_t step);
  // A new batcher takes over. Lower or equal epochs are ignored.
  void begin_epoch(std::uint64_t epoch);
  // No step of `epoch` or an older one is running or will run. Frees what they held.
  void quiesced(std::uint64_t epoch);

  // What an Acquire would find. Takes no references, does not change the LRU order. O(tokens).
  [[nodiscard]] PrefixPrediction predict(const ScopeList& scopes, std::span<const TokenId> tokens) const;
  // The longest cached prefix with this hash (an Anchor's) that a request with `scopes` could be served; none if it is
  // not cached any more. The range begins at 0; in groups with a window the K and V before the window need not be
  // cached. Equal hashes do not prove equal tokens: an Acquire compares them. Takes no references.
  // Expected O(blocks of the prefix).
  [[nodiscard]] std::optional<CachedRange> find_recyclable_range(const ScopeList& scopes, std::uint64_t hash) const;

  [[nodiscard]] CacheCounters counters() const;
  // The blocks of group 0 that count for this tenant, and how many of them no sequence uses. O(1).
  [[nodiscard]] BlockAccounts::Count blocks_of(TenantId tenant) const;
  [[nodiscard]] std::uint64_t epoch() const;
  // Checks every invariant that holds between calls (asserted). O(blocks + leases); for tests.
  void check() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::cache
