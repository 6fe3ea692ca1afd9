// The serving loop of scheduler/serving_loop.h between a keeper and a worker, all in one thread, with every message
// delayed and repeated at random, over an arena that stores which tokens were written to each slot. The worker knows
// nothing but the work that it was given. Batcher and keeper may be lost, and steps fail.
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
#include <variant>
#include <vector>

#include "cache/lease_book.h"
#include "scheduler/bookings.h"
#include "scheduler/deadline_forecast.h"
#include "scheduler/promises.h"
#include "scheduler/serving_loop.h"

namespace troupe::scheduler {

struct SimOptions {
  std::vector<cache::Group> groups{{.num_blocks = 64}};
  PlannerOptions planner{64, 8};
  std::uint64_t seed = 1;
  double repeat_probability = 0.2;  // of each message to the keeper
  bool quick_messages = false;      // all arrive before the running step ends, as where a step takes milliseconds
  // What a step takes in the simulated time: fixed, and for each token.
  double step_seconds = 0.01, token_seconds = 0.001;
  cache::SnapshotRule snapshot_rule{};
  std::uint32_t num_snapshots = 0;
  std::map<TenantId, TenantLimits> limits{};
  std::function<double(const StepLoad&)> step_cost{};  // what a step takes instead of that
  double draft_probability = 0;    // that a sequence has a draft for a step: of right tokens up to a random one
  double failure_probability = 0;  // of each step
  double scored_probability = 0;   // that a request wants the logits of its whole prompt
  bool saves_contents = false;     // of requests that end: submit_turn() goes on from them
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
  std::uint64_t choice = 0;  // other answers to the same prompt have others
  RequestNumber fork_of = 0;
  bool is_scored = false;
  RequestNumber turn_after = 0;     // whose saved contents it begins with
  bool has_contents = false;        // they are in memory
  std::uint32_t num_filled = 0;     // tokens copied from there
  std::uint32_t cached_tokens = 0;  // at first admission
  std::uint32_t resumed_at = 0;     // at the last one
  std::uint32_t num_admissions = 0;
  double submitted_at = 0, first_token_at = -1, ended_at = -1;  // simulated time; -1: not yet
  std::optional<double> deadline{};                             // a promised one, of the last token
};

class ServingSim final : private ServingDriver {
 public:
  explicit ServingSim(SimOptions options);
  ~ServingSim() = default;

  // A request that generates `num_generated` tokens.
  RequestNumber submit(std::vector<TokenId> prompt, std::uint32_t num_generated, std::int32_t priority = 0,
                       cache::ScopeList scopes = {cache::kPublicScope}, TenantId tenant = TenantId{1});
  // So many answers to one prompt, computed once: their numbers follow each other.
  RequestNumber submit_choices(std::vector<TokenId> prompt, std::uint32_t num_generated, std::uint64_t num_choices,
                               TenantId tenant = TenantId{1});
  // Goes on with the tokens of a request that has ended.
  RequestNumber submit_turn(RequestNumber before, const std::vector<TokenId>& more, std::uint32_t num_generated);
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
  // Some request of the tenant waits for computing, or is computed.
  bool wants_computing(TenantId tenant) const;
  double served(TenantId tenant) const { return shares_.served(tenant); }  // its counter
  double allowance() const { return shares_.allowance(); }
  double charged_to(TenantId tenant) const { return charged_.contains(tenant) ? charged_.at(tenant) : 0; }
  double seconds_of(TenantId tenant) const { return seconds_.contains(tenant) ? seconds_.at(tenant) : 0; }
  std::uint64_t num_preemptions() const { return num_preemptions_; }
  std::uint64_t num_at_ceiling() const { return num_at_ceiling_; }  // Acquires that were answered so
  std::uint64_t num_steps() const { return num_steps_; }
  std::uint64_t num_failures() const { return num_failures_; }  // of steps
  std::uint64_t num_accepted() const { return num_accepted_; }  // proposals
  std::uint64_t num_snapshots_saved() const { return num_snapshots_saved_; }
  std::uint32_t most_blocks_held(GroupId group) const { return most_blocks_held_[group]; }  // by one sequence
  const StepPlan& last_plan() const { return loop_->plan(); }
  std::optional<RequestNumber> request_of(SequenceId sequence);
  // Of the tenant, that are not parked: running, or about to.
  std::uint32_t num_sequences(TenantId tenant) const;

  // The tokens that the request must have generated: the same hash chain without any cache.
  static std::vector<TokenId> expected_tokens(const SimRequest& request);

 private:
  using Slots = std::array<std::uint64_t, kBlockSize>;
  struct Live final : ServingRequest {
    SimRequest* record = nullptr;
  };
  struct BeginEpoch {
    std::uint64_t epoch;
  };
  struct Quiesced {
    std::uint64_t epoch;
  };
  using ToKeeper = std::variant<LeaseMessage, BeginEpoch, Quiesced>;
  using ToBatcher = std::variant<cache::LeaseAnswer, cache::Inheritance, Prediction>;
  // A sequence as the worker knows it.
  struct Open {
    BlockTables tables;
    std::uint32_t computed = 0;
    SnapshotId restore = kNoSnapshot;    // before its first row
    std::optional<std::uint64_t> state;  // after it, or of the contents
  };
  // K and V of a request, and its state.
  struct Contents {
    std::uint32_t num_tokens = 0;
    std::vector<std::vector<std::uint64_t>> slots;  // by group, then position; 0: before the window
    std::uint64_t state = 0;
  };
  struct Row {
    SequenceId sequence;
    std::vector<TokenId> tokens;  // all known at the time
    std::uint64_t choice;
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
    bool fails = false;
    bool copied = true;  // it did not fail before the copies that it begins with
  };

  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  RequestNumber enqueue(SimRequest request);
  void add(SimRequest& request);
  void deliver_to_keeper(const ToKeeper& message);
  void deliver_to_batcher(const ToBatcher& message);
  void pump();
  void start_epoch();
  ForecastServer forecast_server() const;
  std::vector<ForecastRequest> forecast_requests() const;
  std::unique_ptr<cache::LeaseBook> make_book(std::uint64_t epoch, bool await_quiesce) const;
  ServingOptions serving_options() const;
  bool has_state() const { return options_.snapshot_rule.every > 0; }
  Live* find(RequestNumber number) { return static_cast<Live*>(loop_->find(number)); }

  // ServingDriver.
  bool admitted(ServingRequest& request) override;
  bool starts(ServingRequest&) override { return true; }
  bool preempted(ServingRequest&, bool) override { return ++num_preemptions_; }
  bool reads_contents(ServingRequest& request, std::uint32_t num_cached) override;
  void contents_used(ServingRequest& request) override;
  void saved(ServingRequest& request) override;
  void dropped(ServingRequest&) override {}

  // The worker.
  void offer_drafts();
  void run(const ServingWork& work);
  void copy(const BlockCopy& part, bool to_blocks);
  void finish_step();
  void fail_step(const RunningStep& step);
  void write_slots(const Row& row, std::uint32_t position, std::uint64_t hash);
  std::uint64_t compute(const Row& row);
  std::vector<TokenId> verify(const Row& row, std::uint64_t& hash);
  void apply_row(const Row& row, const std::vector<TokenId>& sampled);
  void check_reads(const Row& row) const;
  std::uint64_t state_before(const Row& row) const;
  Slots& block_of(GroupId group, const Row& row, std::uint32_t position) {
    return arenas_[group].at(row.tables[group][position / kBlockSize]);
  }
  const Slots& block_of(GroupId group, const Row& row, std::uint32_t position) const {
    return const_cast<ServingSim*>(this)->block_of(group, row, position);
  }

  SimOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<cache::LeaseBook> book_;
  cache::LeaseEffects effects_;
  std::deque<ToKeeper> to_keeper_;
  std::vector<ToKeeper> repeats_;  // delivered again at any later time, in any order
  std::deque<ToBatcher> to_batcher_;
  std::vector<RequestNumber> reading_;  // whose contents come into memory at any later time

  PromiseMargins margins_;
  RecentUse use_;
  Bookings bookings_;
  double time_ = 0;                     // steps only: all else takes no time
  std::map<TenantId, double> seconds_;  // of steps, by their tokens
  std::map<TenantId, double> charged_;  // of steps, by the costs that were learned
  std::map<RequestNumber, SimRequest> requests_;
  std::map<TenantId, double> weights_;
  FairShares shares_;
  std::optional<ServingLoop> loop_;
  std::uint64_t epoch_ = 1;
  bool awaiting_quiesce_ = false;  // the step of a lost batcher still runs

  std::vector<std::vector<Slots>> arenas_;  // by group
  std::vector<std::uint64_t> snapshots_;
  std::map<RequestNumber, Contents> saving_, contents_;  // of requests that have ended; the latter are complete
  std::map<SequenceId, Open> open_;
  std::map<SequenceId, std::vector<TokenId>> drafts_;  // offered for the running step
  std::optional<RunningStep> running_step_;

  std::uint64_t num_steps_ = 0;
  std::uint64_t num_failures_ = 0;
  std::uint64_t num_accepted_ = 0;
  std::uint64_t num_preemptions_ = 0;
  std::uint64_t num_snapshots_saved_ = 0;
  std::uint64_t num_at_ceiling_ = 0;
  std::array<std::uint32_t, cache::kMaxGroups> most_blocks_held_{};
};

}  // namespace troupe::scheduler
