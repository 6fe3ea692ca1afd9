// Decides what the next step computes: which sequences, how many tokens of each.
//
// Plain logic: no thread, no clock, no blocks either; it knows how many blocks each sequence has, and returns as
// values which sequences need more and which to preempt. ServingLoop owns it and gets the blocks from cache::LeaseBook.
//
// A sequence is `known` tokens of which `computed` lie in the cache. Prefill, chunks, prefix hits, replay after a
// preemption and decoding are one thing: a sequence catching up with its known tokens. One that is a single token
// behind is decoding (its row costs one token); a row that reaches the last known token samples the next one.
//
// The order of everything ("older") takes turns between tenants: first each tenant's first sequence by cache::Rank
// (priority, then arrival), then each one's second, and so on; at one level by arrival. So a tenant with one sequence
// is never preempted for another tenant's second one, and a priority orders the sequences of one tenant only. But
// before all others come the sequences whose blocks, with those of the tenant's sequences that rank before them, are
// within the tenant's floor (TenantLimits::min_kv_blocks): what others borrowed of it is recalled by preempting them.
//
// A plan gives a row of one token to each sequence that is one behind, oldest first; then chunks of the others, oldest
// first, up to max_step_tokens in all and no longer than step_bound() says. Where some of a tenant's and priority's
// have a deadline, those come first among these, the one that had to begin the earliest first; but after kMaxOvertaken
// such steps in a row one goes by age. If the oldest runnable sequence is not decoding, one token is kept for it, so
// decodes cannot starve it. A sequence gets no row while it lacks the blocks for even one token, is parked, or is in
// the running step. Rows of tenants that were served more than FairShares::allowance() beyond the one that was served
// least wait for a later step: a single stream beside a crowd has steps of its own until it has had as much time as the
// crowd (deficit round robin, Shreedhar and Varghese 1995, on measured time). For a model with recurrent state a row
// ends at each boundary of cache::SnapshotRule: after a row only the state at its last token exists, so only that one
// can be saved.
//
// Drafts: before plan() its owner offers the lengths of proposals for sequences that decode. The rows that are worth
// it by DraftRoom are added to the step once all decodes have theirs, and before chunks, which keep half of what is
// left; within max_stall_seconds, and never beyond the sequence's blocks, its last token, or the next boundary of
// SnapshotRule. A sequence with an offer asks for blocks for the next one in time, but none is preempted for them. A
// suspect gets none. After a rejected proposal a recurrent state may be behind the known tokens; what it computes again
// counts as decoding, or if it is more than the longest draft as a chunk.
//
// Answers: a request may propose its whole answer. Its rows are added to the step as a chunk would be, oldest first:
// they take what is left, or half of it beside chunks, within max_stall_seconds where other sequences decode, and are
// not asked whether they are worth it.
//
// How it is used, with the queue and the cache: scheduler/serving_loop.h.
//
// Progress: the oldest sequence always gets a row or the blocks for one. A victim is always parked or younger than the
// sequence it is preempted for, so the oldest is never preempted, and with all others preempted the blocks suffice for
// it, because admission refuses what can never fit (scheduler/shares/admission.h). In the same way the oldest sequence
// of each tenant gets blocks below the tenant's ceiling: for want of those only sequences of the tenant are preempted,
// and those of other tenants go on, whichever is older. Floors keep cached blocks from eviction only while other
// sequences hold blocks (cache/lease_book.h), so they cannot stop the last sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "cache/rank.h"
#include "cache/snapshot_rule.h"
#include "config/draft_limit.h"
#include "scheduler/cost_model.h"
#include "scheduler/draft_length.h"
#include "scheduler/shares/admission.h"
#include "scheduler/shares/fair_queue.h"

namespace troupe::scheduler {

using cache::Rank;

struct PlanItem {
  SequenceId sequence = 0;
  std::uint32_t num_tokens = 0;   // to compute, from the first uncomputed one on; drafts not included
  std::uint32_t num_draft = 0;    // of the tokens offered by offer_draft() or offer_answer(): to verify after these
  bool wants_logits = false;      // the row reaches the last known token: sample the next one
  bool at_snapshot = false;       // it ends at a boundary of SnapshotRule: save a snapshot
  TenantId tenant{};              // charged for it
  double seconds = 0;             // what it was charged, set by StepPlanner::charge()
  std::uint32_t num_skipped = 0;  // StepPlan::skip()
  friend bool operator==(const PlanItem&, const PlanItem&) = default;
};

struct StepPlan {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<PlanItem> items;    // each sequence at most once; decodes first
  std::vector<StepLoad> loads;    // what each item computes
  StepLoad load;                  // what all compute
  std::uint32_t num_decodes = 0;  // rows that decode, of a step without chunks; else 0
  std::uint32_t num_drafts = 0;   // rows of drafts, but of none that is an answer
  friend bool operator==(const StepPlan&, const StepPlan&) = default;

  // Only the tokens of this item behind its first num_skipped are computed; `computed`: those before the item's.
  void skip(std::size_t item, std::uint32_t computed, std::uint32_t num_skipped);
};

enum class StepEnd : std::uint8_t {
  as_planned,
  with_copies,  // besides computing, K and V of sessions were copied: its time says nothing of the next
  failed
};

struct PlannerOptions {
  std::uint32_t max_step_tokens = 512;  // tokens of one step, all rows together; >= 1
  std::uint32_t max_sequences = 64;     // rows of one step, and sequences running at once; >= 1
  // While sequences decode, a step's chunks are cut so that it takes no longer than this, by what CostModel predicts,
  // and in a step of chunks alone than twice as long (step_bound.h). While several models have active tenants, each
  // step is cut as if sequences decoded, and k of them may take 1 / k of this: a sequence of one model waits for about
  // one step of each other one (JobQueue).
  double max_stall_seconds = std::numeric_limits<double>::infinity();
  // Bound on initial_blocks(): the smallest cache group. An Acquire that asks for more might never be granted.
  std::uint32_t max_initial_blocks = kNoBlock;
  cache::SnapshotRule snapshot_rule{};  // every = 0: rows may end at any position
  // Bound on added sequences, parked ones included: where each has a recurrent state, as many as fit in memory. >= 1.
  // A row with a draft takes one more during the step.
  std::uint32_t max_open = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t max_draft = kMaxDraftTokens;  // proposed tokens of one row
  bool verify_all_drafts = false;             // also those that are not predicted to pay: for tests and measurements
  // What was learned by earlier planners of the same model; this one goes on with it. Null: begins with nothing.
  std::shared_ptr<CostModel> costs{};
};

// What add() needs to know of a sequence.
struct SequenceStart {
  SequenceId sequence = 0;
  Rank rank;
  std::uint32_t known = 0;        // tokens, >= 1
  std::uint32_t computed = 0;     // of these, served from the cache, < known; a fork begins inside a block
  std::uint32_t num_blocks = 0;   // length of its block table
  std::uint32_t max_known = 0;    // it ends at this many tokens at the latest (check_fit() returns it); > known
  std::uint32_t alone_until = 0;  // suspect() from the start
  TenantId tenant{};
  std::optional<double> due_seconds{};  // Demand::due_seconds
  std::uint32_t floor = 0;              // blocks kept for the tenant
  std::uint32_t num_scored = 0;         // of the first so many tokens logits are wanted, whatever is sampled
  std::uint32_t answer_tokens = 0;      // that offer_answer() will offer: blocks are asked for in time
};

// `sequence` needs this many more blocks.
struct BlockNeed {
  SequenceId sequence = 0;
  std::uint32_t num_blocks = 0;
  friend bool operator==(const BlockNeed&, const BlockNeed&) = default;
};

// Consecutive blocks that have become full of computed tokens.
struct BlockRange {
  std::uint32_t first_block = 0;
  std::uint32_t num_blocks = 0;
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

// Not thread-safe. A call that names an unknown sequence is a bug (asserted) unless its comment says otherwise. Calls
// are at most O(n log n) in the sequences added; after warm-up none allocates.
class StepPlanner {
 public:
  // `shares` must outlive the planner, which counts the places in it.
  StepPlanner(PlannerOptions options, FairShares& shares);

  // `want` for the Acquire of a request with this many known tokens: the blocks of its first step.
  [[nodiscard]] std::uint32_t initial_blocks(std::uint32_t known) const;

  // Whether another sequence may run. Parked ones do not count: slow readers must not fill the batch.
  [[nodiscard]] bool has_room() const { return num_running() < options_.max_sequences && can_add(); }
  // max_open sequences are added: parked_victim() has to be removed before the next add().
  [[nodiscard]] bool is_full() const { return entries_.size() >= options_.max_open; }
  // It is not full, or there is a parked_victim().
  [[nodiscard]] bool can_add() const { return !is_full() || parked_victim(); }
  // Not while it is full (asserted).
  void add(const SequenceStart& start);
  // Forgets a sequence: ended, cancelled or preempted; also one in the running step. Unknown ids are ignored.
  void remove(SequenceId sequence);
  [[nodiscard]] bool contains(SequenceId sequence) const { return find(sequence) != nullptr; }
  [[nodiscard]] const CostModel& costs() const { return *costs_; }

  // The next step. `out` is overwritten (its vector is reused); without items there is nothing to compute until another
  // call changes a sequence. The sequences in it are not planned again until they are advanced.
  void plan(std::uint64_t step, std::uint64_t epoch, StepPlan& out);
  // `count` tokens are proposed to follow the sequence's known ones: for the next plan() only, which verifies some or
  // none. Unknown ids are ignored.
  void offer_draft(SequenceId sequence, std::uint32_t count);
  // As offer_draft(), of tokens that the request itself proposes. 0: there are no more.
  void offer_answer(SequenceId sequence, std::uint32_t count);
  // How many tokens a draft model should propose for each of these sequences, which all decode, where each takes a pass
  // of pass_seconds over all of them: the number with which tokens per second are highest, at most `most`; often 0. Now
  // and then 1 where it would be 0, to learn whether that has changed.
  [[nodiscard]] std::uint32_t wanted_drafts(std::span<const SequenceId> sequences, double pass_seconds,
                                            std::uint32_t most);
  // What became known of a sequence's proposals, verified or not: `num_right` were what followed, then one was not if
  // was_wrong. Unknown ids are ignored.
  void observe_draft(SequenceId sequence, std::uint32_t num_right, bool was_wrong);
  // The share of the sequence's next proposals that are expected to be right; of an unknown id what all had.
  [[nodiscard]] double draft_acceptance(SequenceId sequence) const;
  // The result of a sequence's row: `num_sampled` new tokens are known (0 to num_draft + 1, and 0 if the row wanted no
  // logits; asserted), and num_computed tokens are computed; none: the row's, and the accepted proposals. Unknown ids
  // are ignored (removed meanwhile).
  void advance(SequenceId sequence, std::uint32_t num_sampled, std::optional<std::uint32_t> num_computed = {});
  // Divides the time of a step among its rows, by what CostModel::share() says of each (PlanItem::seconds), and charges
  // their tenants; also for rows whose sequence has ended.
  void charge(StepPlan& plan, double seconds, StepEnd how = StepEnd::as_planned);
  // The step was lost: all planned rows count as never planned.
  void abandon_step();
  // Each of its rows is planned as the only row of a step until this many of its tokens are computed. Unknown ids are
  // ignored.
  void suspect(SequenceId sequence, std::uint32_t until_computed);

  // The full blocks of computed tokens that were not reported yet; num_blocks is 0 if there are none.
  [[nodiscard]] BlockRange newly_full(SequenceId sequence);

  // The sequences that need more blocks for their next two steps, oldest first; appended to `out`. Each need is listed
  // once, until grant() or deny(). A denied one is listed again if some blocks were available, or remove() or
  // retry_denied() was called since it was listed, then for no more than was available (at least 1); and no sequence
  // younger than a starved one is listed, of its tenant if that one is at its tenant's ceiling.
  void needs(std::vector<BlockNeed>& out);
  void grant(SequenceId sequence, std::uint32_t num_blocks);  // unknown ids are ignored
  // Short; unknown ids are ignored.
  void deny(SequenceId sequence, std::uint32_t num_available = 0, bool at_ceiling = false);
  // Call when blocks may have been given back without a call of the planner: by the Release of a sequence that was not
  // added, the end of a step that a Release waited for, a swap by Committed, the end of an old epoch.
  void retry_denied();
  // A sequence was denied blocks and has none for its next token: preempt one before the next admission.
  [[nodiscard]] bool starved() const;
  // The same, of one tenant whose ceiling is the reason: it concerns only this tenant's admission.
  [[nodiscard]] bool starved_at_ceiling(TenantId tenant) const;

  // The sequence to preempt: the youngest parked one, else the youngest one that is younger than the oldest starved
  // (or than a request that waits), else the youngest parked one within its tenant's floor, which is not first since
  // its blocks stay cached. For a sequence at its ceiling: only one of its tenant. Never one in a running step or
  // without blocks. None: there is no such sequence, and for victim() also if none is starved or the oldest starved
  // one's request for blocks is unanswered; a sequence at its ceiling is passed over then.
  [[nodiscard]] std::optional<SequenceId> victim() const;
  [[nodiscard]] std::optional<SequenceId> victim_for(const Demand& waiting, bool at_ceiling = false) const;
  // The sequence whose place a waiting request gets, where all places are taken; while a step is running, the one that
  // it would be if the step had ended. The youngest of those at a higher level than the request would have; of the same
  // tenant only those of a worse priority. Else, with more tenants than places, the youngest sequence of the tenant
  // that was served the most, if that is kPlaceTurnSeconds more than the request's tenant.
  [[nodiscard]] std::optional<SequenceId> place_for(const Demand& waiting) const;
  // Whether waiting request `a` is to be admitted before `b` whatever prefixes are cached: by priority among requests
  // of one tenant, else within its tenant's floor before others, then by level.
  [[nodiscard]] bool outranks(const Demand& a, const Demand& b) const;
  // Whether waiting request `a` is older than `b`.
  [[nodiscard]] bool is_older(const Demand& a, const Demand& b) const;
  // The youngest parked one that is in no running step.
  [[nodiscard]] std::optional<SequenceId> parked_victim() const;

  // A parked sequence is not planned (a row in the running step still counts). Both are idempotent.
  void park(SequenceId sequence) { set_parked(sequence, true); }
  void unpark(SequenceId sequence) { set_parked(sequence, false); }
  // The best rank among the followers that wait for this sequence; none: its own again. Unknown ids are ignored.
  void inherit(SequenceId sequence, std::optional<Rank> rank);

  // Added and not parked.
  [[nodiscard]] std::uint32_t num_running() const { return static_cast<std::uint32_t>(entries_.size()) - num_parked(); }
  [[nodiscard]] std::uint32_t num_parked() const;
  // It is a token behind its known ones, or as many more as a rejected proposal has left.
  [[nodiscard]] bool decodes(SequenceId sequence) const { return at(sequence).decoding(); }
  [[nodiscard]] std::uint32_t known(SequenceId sequence) const { return at(sequence).known; }
  [[nodiscard]] std::uint32_t computed(SequenceId sequence) const { return at(sequence).computed; }

 private:
  enum class Asking : std::uint8_t { no, asked, denied };
  struct Entry {
    SequenceId sequence = 0;
    TenantId tenant{};
    bool is_lent = true;      // needs blocks above its tenant's floor
    std::uint32_t level = 0;  // how many sequences of the tenant rank before it; parked: 0, and it is not counted
    Rank own_rank;
    Rank rank;                     // own, or inherited from a follower
    std::uint32_t num_prompt = 0;  // known when it was added
    std::uint32_t known = 0;
    std::uint32_t computed = 0;
    std::uint32_t planned = 0;    // tokens in the running step; 0: not in it
    bool wants_logits = false;    // in the running step
    std::uint32_t num_draft = 0;  // in the running step
    std::uint32_t offered = 0;    // proposals for the next step
    bool offers_answer = false;   // they are the request's own
    std::uint32_t reach = 0;      // proposals that the step after may have
    std::uint32_t behind = 0;     // known tokens that a rejected proposal left to compute again
    DraftAcceptance acceptance{};
    std::uint32_t num_blocks = 0;
    std::uint32_t max_known = 0;
    std::uint32_t floor = 0;
    std::uint32_t num_scored = 0;
    std::uint32_t num_reported = 0;  // full blocks that newly_full() has returned
    std::uint32_t alone_until = 0;   // computed tokens up to which its row is the only one of a step
    Asking asking = Asking::no;
    bool was_denied = false;          // and not granted since
    std::uint32_t num_available = 0;  // when it was denied
    bool at_ceiling = false;          // when it was denied
    bool may_retry = false;           // blocks may have been given back since it was listed by needs()
    bool parked = false;
    double due_seconds = std::numeric_limits<double>::infinity();

    bool has_deadline() const { return due_seconds < std::numeric_limits<double>::infinity(); }
    // The most that will be computed and known when the running step ends.
    std::uint32_t next_computed() const { return computed + planned + num_draft; }
    std::uint32_t next_known() const { return known + (planned > 0 && wants_logits ? 1 + num_draft : 0); }
    bool lacks_block() const { return num_blocks <= next_computed() / kBlockSize; }
    bool starved() const { return !parked && was_denied && lacks_block(); }
    bool runnable() const { return !parked && planned == 0 && computed < known && !lacks_block(); }
    bool decoding() const { return known - computed <= 1 + behind; }
    // Tokens whose logits a row of `count` tokens has to give.
    std::uint32_t num_outputs(std::uint32_t count) const {
      const std::uint32_t last = computed + count == known ? 1 : 0;
      return num_scored <= computed ? last : last + std::min(count, num_scored - computed);
    }
    // Its client waits for each token.
    bool streams() const { return !parked && decoding() && !offers_answer; }
    bool suspected() const { return computed < alone_until; }
    bool starved_at_ceiling() const { return starved() && at_ceiling; }
  };

  template <class MayGo>
  [[nodiscard]] std::optional<SequenceId> youngest(MayGo&& may_go) const;
  template <class IsYounger>
  [[nodiscard]] std::optional<SequenceId> victim_beyond(std::optional<TenantId> only, IsYounger&& is_younger) const;
  [[nodiscard]] const Entry* find(SequenceId sequence) const;
  [[nodiscard]] const Entry& at(SequenceId sequence) const;
  [[nodiscard]] Entry* find(SequenceId sequence) { return const_cast<Entry*>(std::as_const(*this).find(sequence)); }
  [[nodiscard]] Entry& at(SequenceId sequence) { return const_cast<Entry&>(std::as_const(*this).at(sequence)); }
  [[nodiscard]] std::uint32_t missing_blocks(const Entry& entry) const;
  [[nodiscard]] double max_stall_seconds() const;
  [[nodiscard]] double longest_with_drafts(double plain, const Entry* first) const;
  [[nodiscard]] std::uint32_t chunk_within(double limit, const StepLoad& before, const Entry& entry,
                                           std::uint32_t most) const;
  void plan_rows(StepPlan& out);
  [[nodiscard]] bool add_draft_row(Entry& entry, std::size_t item, DraftRoom* room, StepPlan& out) const;
  void add_drafts(std::uint32_t most, StepPlan& out);
  void add_answers(std::uint32_t most, StepPlan& out) const;
  [[nodiscard]] std::uint32_t draft_limit(const Entry& entry) const;
  [[nodiscard]] bool streams_wait(const Entry* but_for) const;
  [[nodiscard]] std::uint32_t rows_within_stall(const StepLoad& before, const Entry& entry, std::uint32_t most) const;
  void put_deadlines_first();
  [[nodiscard]] SequenceId without_deadline(SequenceId sequence) const;
  [[nodiscard]] std::uint32_t level_of(const Demand& waiting) const;
  [[nodiscard]] bool is_lent(TenantId tenant, Rank rank, std::uint32_t known, std::uint32_t floor) const;
  [[nodiscard]] bool is_lent(const Demand& waiting) const;
  void set_parked(SequenceId sequence, bool parked);
  void sort_entries();

  PlannerOptions options_;
  FairShares* shares_;
  CostModel* costs_;                      // options_.costs
  std::vector<Entry> entries_;            // oldest first
  mutable std::size_t last_found_ = 0;    // where find() begins
  std::vector<Entry*> prefills_;          // of the step being planned, in their order
  std::vector<Entry*> decodes_;           // of the step being planned, as the items are
  DraftAcceptance acceptance_{0.9, 4};    // of all sequences
  std::uint32_t undrafted_in_a_row_ = 0;  // times that wanted_drafts() was 0
  std::uint32_t probe_after_ = 0;         // so many of them; 0: the fewest
  DraftCosts draft_costs_;
  bool probes_ = false;                    // the next draft is verified whether or not it is worth it
  std::uint32_t unverified_in_a_row_ = 0;  // steps with offers of which none was verified
  std::uint32_t deadlines_in_a_row_ = 0;   // steps in which chunks did not go by age
};

}  // namespace troupe::scheduler
