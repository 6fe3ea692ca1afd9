// A batcher, a keeper and a worker in one thread, with every message delayed and repeated at random: the protocol of
// cache/lease_book.h and scheduler/step_planner.h as it is meant to be used, over an arena that stores
// which tokens were written to each slot.
//
// Each slot of the arena holds a hash of all tokens up to its position, so a block that is shared wrongly, reused
// too early or evicted while it is read shows at once, and in every token that is sampled afterwards. So does
// each slot of the other cache groups' blocks, of which no step reads more than the window; a recurrent state is the
// hash itself.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <variant>
#include <vector>

#include "cache/lease_book.h"
#include "scheduler/bookings.h"
#include "scheduler/deadline_forecast.h"
#include "scheduler/promises.h"
#include "scheduler/shares/fair_queue.h"
#include "scheduler/step_planner.h"

namespace troupe::scheduler {

struct SimOptions {
  std::vector<cache::Group> groups{{.num_blocks = 64}};
  PlannerOptions planner{64, 8};
  std::uint64_t seed = 1;
  double repeat_probability = 0.2;  // of each message to the keeper
  // What a step takes in the simulated time: fixed, and for each token.
  double step_seconds = 0.01, token_seconds = 0.001;
  cache::SnapshotRule snapshot_rule{};
  std::uint32_t num_snapshots = 0;
  std::map<TenantId, TenantLimits> limits{};
  std::function<double(const StepLoad&)> step_cost{};  // what a step takes instead of that
  double draft_probability = 0;  // that a sequence has a draft for a step: of right tokens up to a random one
};

struct SimRequest {
  RequestNumber number = 0;
  Demand demand;
  cache::ScopeList scopes = {cache::kPublicScope};
  std::vector<TokenId> tokens;  // the prompt, then the generated ones
  std::uint32_t num_prompt = 0;
  std::uint32_t max_known = 0;
  bool ended = false;
  bool cancelled = false;
  bool wants_computing = false;     // counted in the shares
  std::uint32_t cached_tokens = 0;  // at first admission
  std::uint32_t resumed_at = 0;     // at the last one
  std::uint32_t num_admissions = 0;
  double submitted_at = 0, first_token_at = -1, ended_at = -1;  // simulated time; -1: not yet
  std::optional<double> deadline{};                             // a promised one, of the last token
};

class ServingSim {
 public:
  explicit ServingSim(SimOptions options);

  // A request that generates `num_generated` tokens.
  RequestNumber submit(std::vector<TokenId> prompt, std::uint32_t num_generated, std::int32_t priority = 0,
                       cache::ScopeList scopes = {cache::kPublicScope}, TenantId tenant = TenantId{1});
  // The same with a deadline so many seconds from now. None: it cannot be kept, and nothing was queued.
  std::optional<RequestNumber> submit_by(double seconds, std::vector<TokenId> prompt, std::uint32_t num_generated,
                                         TenantId tenant = TenantId{1});
  // The same; what is refused is told how many seconds to wait, and booked under `content` unless that is 0.
  std::variant<RequestNumber, double> submit_or_book(double seconds, std::vector<TokenId> prompt,
                                                     std::uint32_t num_generated, TenantId tenant,
                                                     std::uint64_t content);
  // Of a request that would be submitted now; its `weight` and demand.arrival are not used.
  Forecast forecast_of(ForecastRequest next) const;
  // While nothing runs no time passes.
  void wait_until(double time) { time_ = std::max(time_, time); }
  void cancel(RequestNumber number);
  void park(RequestNumber number);
  void unpark(RequestNumber number);
  // The batcher is lost and another takes over; a running step goes on until it ends.
  void kill_batcher();
  void kill_keeper();

  // Of requests that begin from now on; 1 if it is never set.
  void set_weight(TenantId tenant, double weight) { weights_[tenant] = weight; }

  // Runs one random event that is possible now; false if there is none.
  bool tick();
  // Until nothing is left to do; fails the test after max_ticks.
  void drain(std::uint64_t max_ticks = 2'000'000);

  const SimRequest& request(RequestNumber number) const { return requests_.at(number); }
  const std::map<RequestNumber, SimRequest>& requests() const { return requests_; }
  const cache::LeaseBook& book() const { return *book_; }
  Forecast alone_of(const ForecastRequest& request) const { return alone(forecast_server(), request); }
  // Called by submit_by()'s caller: whether the promise was kept.
  void settle(RequestNumber number, bool was_kept) { margins_.learn(request(number).demand.tenant, was_kept, time_); }
  double time() const { return time_; }
  double seconds_of(TenantId tenant) const { return seconds_.contains(tenant) ? seconds_.at(tenant) : 0; }
  std::uint64_t num_preemptions() const { return num_preemptions_; }
  std::uint64_t num_at_ceiling() const { return num_at_ceiling_; }  // Acquires that were answered so
  std::uint64_t num_steps() const { return next_step_ - 1; }
  std::uint64_t num_accepted() const { return num_accepted_; }  // proposals
  std::uint64_t num_snapshots_saved() const { return num_snapshots_saved_; }
  std::uint32_t most_blocks_held(GroupId group) const { return most_blocks_held_[group]; }  // by one sequence
  const StepPlan& last_plan() const { return plan_; }
  std::optional<RequestNumber> request_of(SequenceId sequence) const;
  // Of the tenant, that are not parked: running, or about to.
  std::uint32_t num_sequences(TenantId tenant) const;

  // The tokens that the request must have generated: the same hash chain without any cache.
  static std::vector<TokenId> expected_tokens(const SimRequest& request);

 private:
  enum class Phase { acquiring, waiting, short_of_blocks, running };
  struct Sequence {
    RequestNumber request;
    Phase phase = Phase::acquiring;
    std::uint32_t sent = 0;
    std::uint32_t seen = 0;
    std::uint64_t last_step = 0;
    bool parked = false;
    bool at_ceiling = false;     // its Acquire was answered so
    std::uint64_t asked_at = 0;  // num_returns_ when it was sent
    bool displaced = false;      // a block was swapped, and no message has said that the swap is applied
    BlockTables tables;
    SnapshotId restore = kNoSnapshot;  // before its first step
    std::vector<SnapshotId> spares;
    SnapshotId saved = kNoSnapshot;  // by its last step
  };
  struct StepDone {
    std::uint64_t epoch, step;
  };
  struct BeginEpoch {
    std::uint64_t epoch;
  };
  struct Quiesced {
    std::uint64_t epoch;
  };
  using ToKeeper = std::variant<cache::Acquire, cache::Extend, cache::Commit, cache::Yield, cache::Release, StepDone,
                                BeginEpoch, Quiesced>;
  struct Row {
    SequenceId sequence;
    std::vector<TokenId> tokens;  // all known at the time
    BlockTables tables;
    std::uint32_t computed, num_tokens;
    bool wants_logits;
    SnapshotId restore, save;
    std::optional<std::uint64_t> state;  // none: begins from `restore`
    std::vector<TokenId> draft{};
  };
  struct RunningStep {
    std::uint64_t step, epoch;
    double seconds;
    std::vector<Row> rows;
  };

  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  cache::LeaseKey next_key(SequenceId id, Sequence& sequence);
  void deliver_to_keeper(const ToKeeper& message);
  void deliver_answer(const cache::LeaseAnswer& answer);
  void finish_step();
  void offer_drafts();
  void write_slots(const Row& row, std::uint32_t position, std::uint64_t hash);
  std::vector<TokenId> verify(const Row& row, std::uint64_t& hash);
  void apply_row(const Row& row, const std::vector<TokenId>& sampled, std::uint64_t step);
  void pump();
  void admit();
  void send_acquire(SequenceId id);
  void end(SequenceId id, std::uint64_t after_step);
  void come_back();
  void preempt(SequenceId id);
  void count_share(RequestNumber number, bool wants_computing);
  void withdraw_claim(SequenceId id);
  void start_epoch();
  void start_step();
  void check_reads(const Row& row) const;
  ForecastServer forecast_server() const;
  std::vector<ForecastRequest> forecast_requests() const;
  RequestNumber enqueue(SimRequest request);
  std::unique_ptr<cache::LeaseBook> make_book(std::uint64_t epoch, bool await_quiesce) const;
  PlannerOptions planner_options() const;
  std::uint64_t state_before(const Row& row) const;
  void leave_windows_behind(Sequence& sequence, std::uint32_t num_committed);
  using Slots = std::array<std::uint64_t, kBlockSize>;
  Slots& block_of(GroupId group, const Row& row, std::uint32_t position) {
    return arenas_[group].at(row.tables[group][position / kBlockSize]);
  }
  const Slots& block_of(GroupId group, const Row& row, std::uint32_t position) const {
    return const_cast<ServingSim*>(this)->block_of(group, row, position);
  }
  bool has_state() const { return options_.snapshot_rule.every > 0; }
  Demand demand_of(SequenceId id) const;
  Demand demand_of(const SimRequest& request) const;
  bool may_admit(TenantId tenant) const;
  bool can_ask_again(SequenceId id) const;
  void ask_again(SequenceId id);
  std::optional<SequenceId> sequence_of(RequestNumber number) const;

  std::map<SequenceId, std::vector<TokenId>> drafts_;  // offered for the next step
  std::uint64_t num_accepted_ = 0;
  SimOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<cache::LeaseBook> book_;
  cache::LeaseEffects effects_;
  std::deque<ToKeeper> to_keeper_;
  std::vector<ToKeeper> repeats_;  // delivered again at any later time, in any order
  std::deque<std::variant<cache::LeaseAnswer, cache::Inheritance>> to_batcher_;
  std::vector<std::vector<Slots>> arenas_;  // by group
  std::vector<std::uint64_t> snapshots_;
  std::map<SequenceId, std::uint64_t> states_;  // after the last step, of those that have been in one

  PromiseMargins margins_;
  RecentUse use_;
  Bookings bookings_;
  double time_ = 0;                     // steps only: all else takes no time
  std::map<TenantId, double> seconds_;  // of steps, by their tokens
  std::map<RequestNumber, SimRequest> requests_;
  std::map<TenantId, double> weights_;
  FairShares shares_;
  FairQueue queue_{shares_, [this](TenantId tenant) { return may_admit(tenant); }};
  StepPlanner planner_;
  std::map<SequenceId, Sequence> sequences_;
  std::set<RequestNumber> preempted_parked_;  // preempted while parked
  SequenceId next_sequence_ = 1;
  std::uint64_t epoch_ = 1;
  bool awaiting_quiesce_ = false;  // the step of a lost batcher still runs
  std::uint64_t next_step_ = 1;
  bool release_waits_ = false;
  std::uint64_t num_returns_ = 0;
  StepPlan plan_;
  std::optional<RunningStep> running_step_;
  std::uint64_t num_preemptions_ = 0;
  std::uint64_t num_snapshots_saved_ = 0;
  std::uint64_t num_at_ceiling_ = 0;
  std::array<std::uint32_t, cache::kMaxGroups> most_blocks_held_{};
};

}  // namespace troupe::scheduler
