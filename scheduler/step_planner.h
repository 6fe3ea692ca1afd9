// Decides what the next step computes: which sequences, how many tokens of each.
//
// Plain logic: no thread, no clock, no blocks either; it knows how many blocks each sequence has, and says as
// values who needs more and who must give way. The batcher owns it and gets the blocks from cache::LeaseBook.
//
// A sequence is `known` tokens of which `computed` lie in the cache. Prefill, chunks, prefix hits, replay after a
// preemption and decoding are one thing: a sequence catching up with its known tokens. One that is a single token
// behind is decoding (its row costs one token); a row that reaches the last known token samples the next one.
//
// The order of everything is cache::Rank (priority, then arrival; lower is older). A plan gives a row of one token
// to each sequence that is one behind, oldest first; then chunks of the others, oldest first, from what is left of
// max_step_tokens. If the oldest of all is not decoding, one token is kept for it: nobody can starve the oldest.
// Who lacks the blocks for even one token, is parked, or is still in a step that was not advanced sits out.
// Where the model has recurrent state a row ends at each boundary of cache::SnapshotRule: the state is what it is after
// a row's last token, so only there it can be saved.
//
// The batcher's turn, after every event (an answer, a result, a new request, credit):
//
//   1. admission, while has_room() and !starved() and no Acquire is unanswered: pick from the RequestQueue, send
//      Acquire{want = initial_blocks(known), headroom = num_running()}. On Acquired open the sequence in the worker
//      and add() it; on Wait keep it aside (it does not count as running; bound their number); on Short it is the
//      next to admit, before any picked one but those of a better priority, the oldest of several first. Ask again once
//      something came back since the Acquire was sent (the denial may be older than that), or, when no step is running,
//      after preempting victim_for(its rank). The mere end of a step is not something: asked again after each, a
//      request would still wait for its answer whenever somebody could be preempted for it. Where each sequence has a
//      recurrent state, and as many as there is memory for are in here, the Acquired of another one costs a parked one
//      its place: preempt parked_victim() before add(). Without one (those that waited for a leader come several at
//      once) the newcomer gives back what it got, and is queued again.
//   2. needs(): send an Extend for each. grant() or deny() as the answers come. Needs look a step ahead, so the
//      answers usually arrive while a step runs.
//   3. if no step is running and there is a victim(): remove() it, close it in the worker, send
//      Release{after_step = last step planned with it} and put its request back into the queue with its old rank and
//      its tokens so far. needs() then lets the oldest ask first; messages keep their order, so it is served first.
//   4. if no step is running: plan(); if it has items, run it.
//   Something comes back: a Release at once, or with the end of the step it waits for; a block that a Committed
//   replaced, with the next message of its sequence; window blocks, with a Commit that leaves some behind; and
//   headroom, when somebody parks.
//   On StepResult: LeaseBook::step_done, and retry_denied() if a Release waited for it; for each item advance(sequence,
//   number of tokens sampled); emit; then newly_full(): Commit these blocks (known tokens [first * kBlockSize, ...)).
//   Ended sequences: remove(), then Release{after_step = this step}. Committed: swap the entries it names before the
//   next plan, and retry_denied() if one differed. A cancelled sequence: remove(), Release{after_step = last step
//   planned with it}, retry_denied(). Out of credit: park() and Yield; credit again: unpark(). A parked sequence keeps
//   its blocks until somebody is starved; then it is the first victim. LeaseEffects::inherited: inherit(). Answers
//   whose number is not above the sequence's `seen`, or whose sequence has gone, are ignored; a Wait does not count as
//   seen, the answer that follows it has the same number.
//
//   When a step broke: abandon_step(), and suspect() every sequence in it. A suspect is computed alone, and before
//   everybody else, until it is past the tokens of the broken step: then that step was not its fault.
//
// tests/scheduler/serving_sim.cpp is such a batcher in its smallest form.
//
// Progress: the oldest sequence always gets a row or the blocks for one. A victim is always younger than the one it
// gives way to (or parked), so the oldest is never preempted, and with everybody else gone its blocks suffice, because
// admission refuses what can never fit (scheduler/admission.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cache/ids.h"
#include "cache/rank.h"
#include "cache/snapshot_rule.h"

namespace troupe::scheduler {

using cache::Rank;

struct PlanItem {
  SequenceId sequence = 0;
  std::uint32_t num_tokens = 0;  // to compute, from the first uncomputed one on; drafts not included
  std::uint32_t num_draft = 0;   // draft tokens to verify after these; 0: nothing drafts yet
  bool wants_logits = false;     // the row reaches the last known token: sample the next one
  bool at_snapshot = false;      // it ends at a boundary: a snapshot of the state is worth taking
  friend bool operator==(const PlanItem&, const PlanItem&) = default;
};

struct StepPlan {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<PlanItem> items;  // each sequence at most once; decodes first
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

struct PlannerOptions {
  std::uint32_t max_step_tokens = 512;  // tokens of one step, all rows together; >= 1
  std::uint32_t max_sequences = 64;     // rows of one step, and sequences running at once; >= 1
  // No Acquire wants more, or with few window blocks it might wait for ever: how many of those there are.
  std::uint32_t max_initial_blocks = kNoBlock;
  cache::SnapshotRule snapshot_rule{};  // every = 0: rows end where they like
  // Sequences in here at once, parked ones too: where each has a recurrent state, as many as there is memory for. >= 1.
  std::uint32_t max_open = std::numeric_limits<std::uint32_t>::max();
};

// A sequence as it enters: what is known of it and what it holds.
struct SequenceStart {
  SequenceId sequence = 0;
  Rank rank;
  std::uint32_t known = 0;        // tokens, >= 1
  std::uint32_t computed = 0;     // of these, served from the cache, < known; a fork begins inside a block
  std::uint32_t num_blocks = 0;   // length of its block table
  std::uint32_t max_known = 0;    // it ends at this many tokens at the latest (Admission gives it); > known
  std::uint32_t alone_until = 0;  // suspect() from the start
};

// `sequence` should get this many blocks more.
struct BlockNeed {
  SequenceId sequence = 0;
  std::uint32_t num_blocks = 0;
  friend bool operator==(const BlockNeed&, const BlockNeed&) = default;
};

// A run of blocks that have become full of computed tokens.
struct BlockRange {
  std::uint32_t first_block = 0;
  std::uint32_t num_blocks = 0;
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

// Not thread-safe. Every call but add() and remove() that names an unknown sequence is a bug (asserted). Calls are
// O(1) or O(running sequences); after warm-up none allocates.
class StepPlanner {
 public:
  explicit StepPlanner(PlannerOptions options);

  // What Acquire should want for a request with this many known tokens: the blocks of its first step.
  [[nodiscard]] std::uint32_t initial_blocks(std::uint32_t known) const;

  // Whether another sequence may run. Parked ones do not count: slow readers must not fill the batch.
  [[nodiscard]] bool has_room() const;
  // As many as max_open are in here: parked_victim() has to go before the next add().
  [[nodiscard]] bool is_full() const;
  // It is not full, or there is a parked_victim().
  [[nodiscard]] bool can_add() const;
  // Not while it is full (asserted).
  void add(const SequenceStart& start);
  // Forgets a sequence: ended, cancelled or preempted; also one in the running step. Unknown ids are ignored.
  void remove(SequenceId sequence);
  [[nodiscard]] bool contains(SequenceId sequence) const;

  // The next step. `out` is overwritten (its vector is reused); without items there is nothing to do until
  // something else happens. The sequences in it sit out until they are advanced.
  void plan(std::uint64_t step, std::uint64_t epoch, StepPlan& out);
  // The result of a sequence's row: its tokens are computed, and `num_sampled` new ones known (0 or 1 without
  // drafts; 1 asserted to be only where the row wanted logits). Unknown ids are ignored (removed meanwhile).
  void advance(SequenceId sequence, std::uint32_t num_sampled);
  // The step was lost: all planned rows count as never planned.
  void abandon_step();
  // Its rows get steps of their own until this many of its tokens are computed. Unknown ids are ignored.
  void suspect(SequenceId sequence, std::uint32_t until_computed);

  // The full blocks of computed tokens that were not reported yet; num_blocks is 0 if there are none.
  [[nodiscard]] BlockRange newly_full(SequenceId sequence);

  // Who needs more blocks for its next two steps, oldest first; appended to `out`. Each need is told once, until
  // grant() or deny(). A denied one is told again if some blocks were available, or something came back since it
  // asked (a remove() or retry_denied()), then for no more than was available; and while an older sequence is starved
  // no younger asks.
  void needs(std::vector<BlockNeed>& out);
  void grant(SequenceId sequence, std::uint32_t num_blocks);        // unknown ids are ignored
  void deny(SequenceId sequence, std::uint32_t num_available = 0);  // Short; unknown ids are ignored
  // Blocks may have come back in a way that the planner cannot see: the Release of a sequence that was not in here, the
  // end of a step that a Release waited for, a swap by Committed, the end of an old epoch.
  void retry_denied();
  // Somebody was denied and has no block for its next token: admit nobody, preempt somebody.
  [[nodiscard]] bool starved() const;

  // Who must give way: the youngest parked sequence, else the youngest one that is younger than the oldest starved
  // (or than `rank`). Never one in a running step or without blocks. None: nobody is starved, its last request for
  // blocks is unanswered, or waiting helps.
  [[nodiscard]] std::optional<SequenceId> victim() const;
  [[nodiscard]] std::optional<SequenceId> victim_for(const Rank& rank) const;
  // The youngest parked one that is in no running step.
  [[nodiscard]] std::optional<SequenceId> parked_victim() const;

  // Sits out from now on (after a step that is running). Both are idempotent.
  void park(SequenceId sequence);
  void unpark(SequenceId sequence);
  // The best rank among those who wait for this sequence; none: its own again. Unknown ids are ignored.
  void inherit(SequenceId sequence, std::optional<Rank> rank);

  [[nodiscard]] std::uint32_t num_running() const;  // in here and not parked
  [[nodiscard]] std::uint32_t num_parked() const;
  [[nodiscard]] std::uint32_t known(SequenceId sequence) const;
  [[nodiscard]] std::uint32_t computed(SequenceId sequence) const;

 private:
  enum class Asking : std::uint8_t { no, asked, denied };
  struct Entry {
    SequenceId sequence;
    Rank own_rank;
    Rank rank;                 // own, or inherited from a follower
    std::uint32_t num_prompt;  // known when it was added
    std::uint32_t known;
    std::uint32_t computed;
    std::uint32_t planned;  // tokens in the running step; 0: not in it
    bool wants_logits;      // in the running step
    std::uint32_t num_blocks;
    std::uint32_t max_known;
    std::uint32_t num_reported;  // full blocks that newly_full() told
    std::uint32_t alone_until;   // computed tokens up to which its rows get steps of their own
    Asking asking;
    bool was_denied;              // and not granted since
    std::uint32_t num_available;  // when it was denied
    bool may_retry;               // something came back since it asked
    bool parked;

    // What will be computed and known when the running step ends.
    std::uint32_t next_computed() const { return computed + planned; }
    std::uint32_t next_known() const { return known + (planned > 0 && wants_logits ? 1 : 0); }
    bool lacks_block() const { return num_blocks <= next_computed() / kBlockSize; }
    bool starved() const { return !parked && was_denied && lacks_block(); }
    bool runnable() const { return !parked && planned == 0 && computed < known && !lacks_block(); }
    bool decoding() const { return known - computed == 1; }
    bool suspected() const { return computed < alone_until; }
  };

  template <class MayGo>
  [[nodiscard]] std::optional<SequenceId> youngest(MayGo&& may_go) const;
  [[nodiscard]] Entry* find(SequenceId sequence);
  [[nodiscard]] Entry& at(SequenceId sequence);
  [[nodiscard]] const Entry& at(SequenceId sequence) const;
  [[nodiscard]] std::uint32_t missing_blocks(const Entry& entry) const;
  void sort_entries();

  PlannerOptions options_;
  std::vector<Entry> entries_;  // oldest first
};

}  // namespace troupe::scheduler
