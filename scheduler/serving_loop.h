// What a batcher does with the requests of one model: admits them, gets blocks for them from the keeper, preempts,
// plans steps, commits what these have computed, and charges for it.
//
// Plain logic over ids and values: no thread, no clock, no text, no stream. It owns the FairQueue, the StepPlanner and
// the requests; its driver (actors/batching/batch.h; in tests tests/scheduler/serving_sim.h) tells it what happened,
// carries messages and work, and answers what only it can know (ServingDriver). So that what is tested at random is
// what serves.
//
// The driver calls, after every event (a request, an answer, a result, credit):
//
//   decide()          admission, and blocks for what runs
//   prepare_step()    true: a step may be planned now
//   offer_draft()     for sequences that decode, if it likes
//   plan_step()       then work() is what the worker is to do
//   take_leases()     for the keeper, in order
//
// Admission, while has_room() and !starved() and no Acquire is unanswered: pick from the FairQueue, send
// Acquire{want = initial_blocks(known), headroom = num_running(), of its tenant own_headroom}. Without room, and when
// no step is running, place_for() the queue's next request is preempted first. If its tenant has no place yet and no
// step is running, none is planned before the Acquire is answered: it has waited for one already. On Acquired the
// sequence is opened in the worker and added to the planner; on Wait it is kept aside (it does not count as running;
// their number is bounded); on Short it is the next to admit, before any picked one but those that outrank() it, the
// oldest of several first. It is asked for again once blocks were given back since the Acquire was sent (the denial may
// be older than that), or, when no step is running, after preempting victim_for() it. On Short{at_ceiling} the same,
// but it keeps no request of other tenants waiting, and of its own tenant none is picked meanwhile, nor while
// starved_at_ceiling(). A finished step alone frees no blocks: asking again after each would leave an Acquire
// unanswered at every moment when a victim could be preempted. Where each sequence has a recurrent state and the
// planner is_full(), parked_victim() is preempted before the new one is added. Without one (several that waited for a
// leader may be Acquired at once) the new sequence is released and its request queued again.
//
// Blocks: needs() look two steps ahead, so answers to Extend usually arrive while a step runs. If no step is running
// and there is a victim(), it is preempted: Release{after_step = last step planned with it}, and its request goes back
// into the queue with its old rank and its tokens so far. needs() then lists the oldest first; messages keep their
// order, so it is served first.
//
// Blocks are given back: by a Release at once, or at the end of the step that it waits for; a block that a Committed
// replaced, by the next message of its sequence; blocks before a window, by a Commit after which no later position
// attends to them. A parked sequence gives back headroom.
//
// Contents: what a request's session has saved (`contents` tokens) is copied to its blocks instead of computed, as
// parts of steps, and committed like computed tokens. save() is the other way: a sequence whose request has ended keeps
// its blocks, as a parked one that may be preempted, until parts of steps have copied them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/lease_messages.h"
#include "scheduler/serving_request.h"
#include "scheduler/shares/fair_queue.h"
#include "scheduler/shares/fair_shares.h"
#include "scheduler/step_planner.h"

namespace troupe::scheduler {

struct ServingOptions {
  std::uint64_t epoch = 1;  // higher than that of every loop before it on the same keeper and worker
  std::vector<cache::Group> groups;
  PlannerOptions planner;
};

// What only the driver knows. A request for which admitted(), starts() or preempted() returns
// false is dropped: its stream has ended.
class ServingDriver {
 public:
  // It has a place and blocks.
  virtual bool admitted(ServingRequest& request) = 0;
  // Its first row is about to be planned.
  virtual bool starts(ServingRequest& request) = 0;
  // It has lost its blocks. was_parked: it waits for unpark(); else it is queued again.
  virtual bool preempted(ServingRequest& request, bool was_parked) = 0;
  // `num_cached` of its tokens are in the cache. True: it waits, without blocks, until it is queued again.
  virtual bool reads_contents(ServingRequest& request, std::uint32_t num_cached) = 0;
  // What it had in memory (`contents`) was copied, or was preempted before: it is not needed any more.
  virtual void contents_used(ServingRequest& request) = 0;
  // All that save() was called for is copied. The request is dropped after this.
  virtual void saved(ServingRequest& request) = 0;
  // It is about to be destroyed, for whatever reason.
  virtual void dropped(ServingRequest& request) = 0;

 protected:
  ~ServingDriver() = default;
};

// Entry `index` of the group's block table becomes `block`, which has equal bits: another sequence published it first.
struct BlockSwap {
  SequenceId sequence = 0;
  GroupId group = 0;
  std::uint32_t index = 0;
  BlockId block = kNoBlock;
};

// A sequence of which the worker learns, with all its blocks so far.
struct SequenceOpening {
  SequenceId sequence = 0;
  const ServingRequest* request = nullptr;  // valid while the sequence is not closed
  std::uint32_t num_cached = 0;             // computed tokens, copied ones included
  BlockTables tables;
  std::vector<BlockId> copy_from;
  SnapshotId restore = kNoSnapshot;
  bool is_filled = false;  // its state, if the model has one, is that of the contents
};

// Positions [from, to) are copied between the sequence's blocks and memory.
struct BlockCopy {
  SequenceId sequence = 0;
  const ServingRequest* request = nullptr;
  BlockTables tables;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool is_last = false;  // of a save
};

// One sequence's part of a step.
struct StepRow {
  SequenceId sequence = 0;
  const ServingRequest* request = nullptr;
  std::uint32_t num_tokens = 0;
  std::uint32_t num_draft = 0;
  bool wants_logits = false;
  BlockTables new_blocks;          // to append to its tables
  std::uint32_t rewind_floor = 0;  // positions before this are never written again
  SnapshotId save = kNoSnapshot;   // write the state after the row there
};

// Done in this order: saves, closes, fills, opens, swaps (also in sequences just opened again), then the rows.
struct ServingWork {
  std::uint64_t step = 0;  // 0: there is none, and only the closes are to be done
  std::vector<BlockCopy> saves;
  std::vector<SequenceId> closes;
  std::vector<BlockCopy> fills;
  std::vector<SequenceOpening> opens;
  std::vector<BlockSwap> swaps;
  std::vector<StepRow> rows;  // in the order of plan()'s items; those that are copied as a whole have none
};

// Not thread-safe. References to requests are valid until they are dropped.
class ServingLoop {
 public:
  using Phase = ServingPhase;

  // `shares` and `driver` must outlive the loop. What is still counted in `shares` at its end is so for ever: drop all
  // requests before.
  ServingLoop(ServingOptions options, FairShares& shares, ServingDriver& driver);
  ServingLoop(const ServingLoop&) = delete;
  ServingLoop& operator=(const ServingLoop&) = delete;

  // Owns the request from now on, in its phase no_credit. Its number must be new (asserted).
  ServingRequest& add(std::unique_ptr<ServingRequest> request);
  // Queues it, from no_credit or undecided; a fork waits first until its parent has computed their prompt.
  void enter(ServingRequest& request);
  // The same, but also a fork at once.
  void queue(ServingRequest& request);
  void drop(ServingRequest& request);
  [[nodiscard]] ServingRequest* find(RequestNumber request);
  [[nodiscard]] ServingRequest* find_sequence(SequenceId sequence);
  [[nodiscard]] ServingRequest* parent_of(const ServingRequest& request);
  [[nodiscard]] const auto& requests() const { return requests_; }    // by number
  [[nodiscard]] const auto& sequences() const { return sequences_; }  // those of requests that have one
  // Of requests that have no place yet: `undecided`, or back to `no_credit`.
  void move_to(ServingRequest& request, Phase phase);
  // A predicted length of its cached prefix is wanted, for whatever decides.
  void predict(const ServingRequest& request);

  // Running, it keeps its place and blocks, but has no rows.
  void park(ServingRequest& request);
  void unpark(ServingRequest& request);
  // False: others of its tenant have taken the place of this parked request. It has to be preempted and queued.
  [[nodiscard]] bool may_unpark(const ServingRequest& request) const;
  // Takes its blocks from it; queues it, but a parked one is in no_credit then. It may be dropped.
  void preempt(ServingRequest& request);

  // Answers of the keeper; late ones are ignored.
  void answered(const cache::LeaseAnswer& answer);
  void inherited(const cache::Inheritance& heir) { planner_.inherit(heir.sequence, heir.rank); }
  void predicted(const Prediction& prediction);

  // The running step has ended, computed or failed: first of all, before its time is charged.
  void step_is_over(std::uint64_t step);
  void charge(double seconds, StepEnd how) { planner_.charge(plan_, seconds, how); }
  // Rows of the ended step that were copied as a whole; to be told to row_ended(), too.
  [[nodiscard]] std::vector<SequenceId> take_filled() { return std::exchange(filled_, {}); }
  // The next part of a save is planned with the next step; the last one was copied by the ended step.
  void saves_ended();
  // The row is computed, num_sampled tokens behind it are in `tokens` by now, and num_computed tokens are computed
  // (StepPlanner::advance). Commits what has become full.
  void row_ended(ServingRequest& request, std::uint32_t num_sampled, std::optional<std::uint32_t> num_computed = {});
  // The step failed: each of its rows is computed alone until it is past the step's tokens.
  void suspect(const PlanItem& item);
  // After that. The worker has no sequence open any more. Running ones are opened again; a recurrent state is lost, and
  // its sequence is preempted to begin again from its last snapshot, as are forks before their first row.
  void abandon_step();

  // Its request has ended. Parts of steps copy its first num_tokens tokens, then the driver is told.
  void save(ServingRequest& request, std::uint32_t num_tokens);

  void decide();
  [[nodiscard]] bool prepare_step();
  void offer_draft(SequenceId sequence, std::uint32_t count) { planner_.offer_draft(sequence, count); }
  // Whether there is a step; then it is running.
  bool plan_step();

  [[nodiscard]] std::vector<LeaseMessage> take_leases() { return std::exchange(leases_, {}); }
  // None: there is nothing to do. Swaps and opens wait for a step; closes free memory, so that they are given at once
  // if no step runs.
  [[nodiscard]] std::optional<ServingWork> take_work();

  [[nodiscard]] StepPlanner& planner() { return planner_; }
  [[nodiscard]] const StepPlanner& planner() const { return planner_; }
  [[nodiscard]] const StepPlan& plan() const { return plan_; }
  [[nodiscard]] std::uint64_t last_step() const { return step_; }
  [[nodiscard]] bool step_running() const { return step_running_; }
  // It is in the running step.
  [[nodiscard]] bool in_step(const ServingRequest& request) const;
  [[nodiscard]] bool has_copies() const { return has_copies_; }     // in the last step
  [[nodiscard]] std::size_t num_rows() const { return num_rows_; }  // of the last step, copied ones included
  [[nodiscard]] bool has_state() const { return options_.planner.snapshot_rule.every > 0; }
  [[nodiscard]] std::uint32_t num_in(Phase phase) const { return num_in_[static_cast<std::size_t>(phase)]; }

 private:
  // A sequence that is not in the planner, but will be: counted as a claim of its tenant.
  static bool has_claim(Phase phase) {
    return phase == Phase::asking || phase == Phase::following || phase == Phase::short_of_blocks;
  }
  cache::LeaseKey next_key(ServingRequest& request);
  void set_parked(ServingRequest& request, bool parked);
  void count_share(ServingRequest& request, bool wants_computing);
  void retry();
  void release_blocks(ServingRequest& request);

  // Admission (serving_admission.cpp).
  void admit();
  void admit_from_queue();
  bool may_follow(TenantId tenant) const;
  bool has_choice();
  void ask_for_predictions();
  bool may_admit(TenantId tenant) const;
  ServingRequest* oldest_short_of_blocks(bool at_ceiling);
  bool can_ask_again(const ServingRequest& request) const;
  void ask_again(ServingRequest& request);
  bool has_computed_prompt(const ServingRequest& request) const;
  std::optional<cache::Fork> fork_of(const ServingRequest& request);
  void requeue_forks(RequestNumber parent);
  void acquire(ServingRequest& request);
  void acquired(ServingRequest& request, const cache::Acquired& answer);
  void committed(ServingRequest& request, const cache::Committed& answer);

  void ask_for_blocks();
  void commit_full_blocks(ServingRequest& request);
  void open(ServingRequest& request, std::uint32_t num_cached, SnapshotId restore = kNoSnapshot);
  std::uint32_t fill(ServingRequest& request, std::uint32_t num_tokens);
  void end_fill(ServingRequest& request);
  void save_part();

  ServingOptions options_;
  FairShares& shares_;
  ServingDriver& driver_;
  FairQueue queue_;
  StepPlanner planner_;
  std::unordered_map<RequestNumber, std::unique_ptr<ServingRequest>> requests_;
  std::unordered_map<SequenceId, ServingRequest*> sequences_;
  std::array<std::uint32_t, kNumServingPhases> num_in_{};  // requests in each phase
  SequenceId last_sequence_ = 0;
  std::uint64_t step_ = 0;
  bool step_running_ = false;
  bool has_copies_ = false;
  std::size_t num_rows_ = 0;
  bool release_waits_ = false;     // a Release was sent that waits for the running step
  std::uint64_t num_returns_ = 0;  // how often blocks or headroom may have been given back
  bool predictions_fresh_ = false;
  bool predictions_asked_ = false;
  bool newcomer_asks_ = false;  // what is in Phase::asking is of a tenant without a place, and no step is running

  std::vector<LeaseMessage> leases_;
  ServingWork work_;
  std::vector<SequenceId> filled_;  // rows of the running step that are copied and not computed
  std::vector<SequenceId> saving_;  // sequences whose blocks are to be copied; some may have gone

  // Scratch, kept between decisions.
  StepPlan plan_;
  std::vector<BlockNeed> needs_;
  std::vector<RequestNumber> candidates_;
};

}  // namespace troupe::scheduler
