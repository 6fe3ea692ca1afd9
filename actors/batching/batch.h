// The running requests of one model: the plain logic of the batcher.
//
// Events come in (a request, credit, answers of the keeper, the result of a step); after each the batcher calls
// decide(), which decides everything that can be decided now, and then takes what is to be sent: messages for the
// keeper, and at most one step for the worker. States and ends go directly to the stream table; what a step's rows
// report waits until the next step is taken. Sinks and on_usage are told of nothing until take_news() is given to
// StreamTable::tell(), which the batcher does without its lock. The order of decisions in decide(), and why it always
// makes progress, is explained in scheduler/step_planner.h; the lease messages in cache/lease_book.h.
//
// Each request has one Phase:
//
//   undecided         has a deadline, and the keeper has not said yet how much of its prompt is cached
//   queued            in the FairQueue
//   asking            has a sequence id, and its Acquire is unanswered; at most one request at a time
//   following         waits for a leader that computes the same prefix
//   short_of_blocks   its Acquire was answered Short; it will be sent again. If its tenant's ceiling was the reason,
//                     other tenants' requests do not wait for it
//   running           in the planner, and open (or about to be opened) in the worker; maybe parked, with its blocks
//   no_credit         out of client credit, without sequence and blocks
//   waiting_for_fork  waits until the choice that it is a fork of has computed their prompt
//   reading           waits until the contents of its session are read from disk, without sequence and blocks
//
// Sessions (sessions/sessions.h, batch_sessions.cpp). If the cache has lost what a session's file has, the contents are
// read to memory and the rows that they cover are copied to the blocks instead of computed: as parts of steps, and
// committed like computed ones. At the end of a turn the sequence keeps its blocks, as a parked one that may be
// preempted, until parts of steps have copied them to memory.
//
// Not thread-safe: the batcher owns it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/batching/draft_counts.h"
#include "actors/batching/step_work.h"
#include "actors/serving/answer.h"
#include "actors/serving/stream_table.h"
#include "scheduler/experience.h"
#include "scheduler/shares/admission.h"
#include "scheduler/shares/fair_queue.h"
#include "scheduler/shares/fair_shares.h"
#include "scheduler/step_planner.h"

namespace troupe::actors {

struct BatchOptions {
  std::uint64_t epoch = 1;  // higher than that of every batch before it on the same keeper and worker
  scheduler::Capacity capacity;
  scheduler::PlannerOptions planner;
  std::shared_ptr<const engine::Tokenizer> tokenizer;      // null: answers have no text
  engine::ReasoningMarkers reasoning{};                    // of the model
  std::function<void(const engine::StepResult&)> on_step;  // GatewayOptions::on_step
  FaultPoints faults{};
  bool has_draft_model = false;
  engine::Speculation speculation{};                    // of requests that do not choose another
  std::shared_ptr<scheduler::Experience> experience{};  // of earlier batches of the model; null: begins with none
  // Called from any thread, when the contents of a request's session were read: the next event is session_read().
  std::function<void(RequestId)> on_session_read{};
  // Called from any thread: a tenant's session was written, for so many seconds of computing. May be empty.
  std::function<void(TenantId, double)> on_session_written{};
};

class Batch {
 public:
  // `streams` and `shares` must outlive the batch. What is still counted in `shares` at its end is so for ever: call
  // forget_all() before.
  Batch(BatchOptions options, StreamTable& streams, scheduler::FairShares& shares);
  ~Batch();

  // Adds a request, new or resumed from an earlier batch. A newer generation of a request that was added already
  // replaces it, an older one is ignored.
  void enqueue(AssignmentPtr task, TimePoint now);
  // The stream has ended: drops the request, also in the middle of a step. Unknown ids are ignored.
  // Returns whether its blocks are given back only when the running step has ended.
  bool forget(RequestId request, TimePoint now = {});
  void forget_all();
  // granted: the client's credit since the beginning, in tokens; a lower figure than before is ignored.
  void credit(RequestId request, std::uint64_t granted);
  void keeper_replied(const LeaseReply& reply, TimePoint now);
  void session_read(RequestId request);
  void step_ended(const engine::StepResult& result, TimePoint now);
  // The running step failed. All sequences go on from where they were. Those of the step are computed alone until they
  // are past its tokens, and a request that fails kMaxFaults times, the last time alone, is ended.
  void step_failed(const StepFailure& failure, TimePoint now);
  // Before each of the events above. `now`: when it came.
  void begin_event(TimePoint now) {
    at_work_ = 0;
    now_ = now;
  }
  // The request that was being worked on since begin_event(), for when that threw; 0: not one request alone.
  [[nodiscard]] RequestId at_work() const { return at_work_; }

  // The draft worker's answer.
  void proposed(std::uint64_t number, const engine::DraftReply& reply, TimePoint now);
  // It died, or there is none: nothing is drafted by it for the next step.
  void drafter_died();
  // Decides what to do next. Call after every event, then send what the take functions return.
  void decide(TimePoint now);
  [[nodiscard]] std::vector<LeaseMessage> take_leases();             // for the keeper, in order; maybe none
  [[nodiscard]] std::shared_ptr<StepWork> take_work();               // for the worker; null: nothing
  [[nodiscard]] std::shared_ptr<const DraftWork> take_draft_work();  // for the draft worker; null: nothing
  // Call after the step was taken and sent. Reports what its predecessor's rows have to.
  [[nodiscard]] StreamTable::News take_news() {
    report();
    return std::exchange(news_, {});
  }
  // Since the last call.
  [[nodiscard]] DraftCountsBySource take_draft_counts() { return std::exchange(draft_counts_, {}); }
  [[nodiscard]] std::size_t num_requests() const { return requests_.size(); }
  // Some running sequence is not parked, so steps go on without a client's credit.
  [[nodiscard]] bool has_work() const { return planner_.num_running() > 0; }
  [[nodiscard]] bool step_running() const { return step_running_; }

 private:
  enum class Phase : std::uint8_t {
    undecided,
    queued,
    asking,
    following,
    short_of_blocks,
    running,
    no_credit,
    waiting_for_fork,
    reading
  };
  static constexpr std::size_t kNumPhases = 9;
  struct Live;

  // A sequence that is not in the planner, but will be: counted as a claim of its tenant.
  static bool has_claim(Phase phase) {
    return phase == Phase::asking || phase == Phase::following || phase == Phase::short_of_blocks;
  }
  // What the rows of a step report waits until the next step is sent, or until something else is reported: it is not
  // needed to plan, and takes as long as planning.
  void report();
  StreamTable& streams() {
    report();
    return streams_;
  }
  Live* find(RequestId request);
  Live* find_sequence(SequenceId sequence);
  scheduler::Demand demand_of(const Live& live) const;
  cache::LeaseKey next_key(Live& live);
  void enter(Live& live, TimePoint now);

  // Deadlines (batch_deadlines.cpp).
  bool ask_for_promise(Live& live);
  void decide_promise(Live& live, std::uint32_t num_cached, TimePoint now);
  void promise(const Live& first);
  // In seconds: left until the deadline, and to wait before another try.
  struct Lateness {
    double left = 0, wait = 0;
  };
  [[nodiscard]] double seconds_to_wait(const Live& live, const scheduler::Forecast& expected, double left) const;
  void refuse(Live& first, const scheduler::Forecast& expected, const Lateness& late, TimePoint now);
  void book(const Live& refused, std::chrono::milliseconds wait, TimePoint now);
  void settle_promise(Live& live, bool is_last, TimePoint now);
  scheduler::PromiseMargin& margin_of(const Live& live) const;
  scheduler::ForecastServer forecast_server() const;
  scheduler::ForecastRequest forecast_request(const Live& live, TimePoint now) const;
  void learn_pace(const engine::StepResult& result);

  // Admission (batch_admission.cpp).
  void move_to(Live& live, Phase phase);
  void set_parked(Live& live, bool parked);
  void count_share(Live& live, bool wants_computing);
  std::uint32_t num_at(Phase phase) const { return num_at_[static_cast<std::size_t>(phase)]; }
  bool set_state(const Live& live, RequestState state);  // as StreamTable::set_state()
  void queue_again(Live& live);
  void admit();
  void admit_from_queue();
  bool may_follow(TenantId tenant) const;
  bool has_choice();
  void ask_for_predictions();
  bool may_admit(TenantId tenant) const;
  Live* oldest_short_of_blocks(bool at_ceiling);
  bool can_ask_again(const Live& live) const;
  void ask_again(Live& live);
  Live* parent_of(const Live& live);
  bool has_computed_prompt(const Live& live) const;
  std::optional<cache::Fork> fork_of(const Live& live);
  void requeue_forks(RequestId parent);
  void acquire(Live& live);
  void acquired(Live& live, const cache::Acquired& answer);
  void make_room();
  void preempt(Live& live);

  // Drafts (batch_drafts.cpp).
  void begin_drafts(Live& live);
  bool may_draft(const Live& live) const;
  bool ask_for_drafts();
  void charge_drafts(double seconds, TimePoint now);
  bool may_verify(const Live& live) const;
  void offer_drafts();
  void offer_own_proposal(Live& live);
  std::uint32_t proposal_left(const Live& live) const;
  void check_own_proposal(Live& live, const engine::ItemResult& row);
  void learn_from_draft(Live& live, const engine::ItemResult& row, std::uint32_t num_draft);

  // Sessions (batch_sessions.cpp).
  bool read_session(Live& live, std::uint32_t num_cached);
  std::shared_ptr<const engine::SequenceImage> image_of(const Live& live) const;
  std::uint32_t fill(Live& live, std::uint32_t num_tokens);
  void end_fill(Live& live);
  void fills_ended();
  std::shared_ptr<SessionSaving> begin_saving(Live& live, scheduler::Outcome outcome);
  void keep_for_saving(Live& live, std::shared_ptr<SessionSaving> saving);
  void save_part();
  void part_saved();
  void charge_copies(TimePoint now);
  void give_up_saving();

  // Running.
  void apply(Live& live, const cache::LeaseAnswer& answer);
  void ask_for_blocks();
  void plan_step(TimePoint now);
  void step_is_over(std::uint64_t epoch, std::uint64_t step);
  void charge_step(double seconds, scheduler::StepEnd how, const engine::StepResult* result, TimePoint now);
  void fail_request(Live& live, const Failure& why, TimePoint now);
  bool has_state() const { return options_.planner.snapshot_rule.every > 0; }
  void open(Live& live, std::uint32_t num_cached);
  void clear_faults(Live& live);
  void take_row(Live& live, const engine::ItemResult& row, std::uint32_t num_draft, TimePoint now);
  void row_computed(Live& live, const engine::ItemResult& row, std::size_t num_taken, std::uint32_t num_draft);
  void commit_full_blocks(Live& live);
  void committed(Live& live, const cache::Committed& answer);
  void park(Live& live, TimePoint now);
  bool out_of_credit(Live& live, TimePoint now);
  void retry();
  void release_blocks(Live& live);
  void drop(Live& live);
  void end(Live& live, scheduler::Outcome outcome, std::string stop, TimePoint now);

  BatchOptions options_;
  StreamTable& streams_;
  scheduler::FairShares& shares_;
  scheduler::FairQueue queue_;
  scheduler::StepPlanner planner_;
  std::unordered_map<RequestId, std::unique_ptr<Live>> requests_;
  std::unordered_map<SequenceId, Live*> sequences_;
  std::array<std::uint32_t, kNumPhases> num_at_{};  // requests in each phase
  SequenceId last_sequence_ = 0;
  std::uint64_t step_ = 0;
  bool step_running_ = false;
  std::optional<TimePoint> last_step_ended_;  // none: there was a pause after it
  std::size_t num_rows_ = 0;                  // of the last step
  RequestId at_work_ = 0;
  TimePoint now_{};                // of the event
  bool release_waits_ = false;     // a Release was sent that waits for the running step
  std::uint64_t num_returns_ = 0;  // how often blocks or headroom may have been given back
  bool predictions_fresh_ = false;
  bool predictions_asked_ = false;
  DraftCountsBySource draft_counts_{};
  std::shared_ptr<DraftWork> draft_work_;    // to be sent
  std::uint64_t draft_number_ = 0;           // of the last work
  std::uint64_t drafted_step_ = 0;           // for which drafts were asked for
  bool drafts_pending_ = false;              // the next step waits for them
  std::vector<RequestId> drafting_;          // requests that were asked for
  std::vector<std::uint64_t> draft_closes_;  // to be sent
  double pass_seconds_ = 0;                  // that one pass of the draft model takes, of late
  bool newcomer_asks_ = false;  // what is in Phase::asking is of a tenant without a place, and no step is running

  // To be sent.
  StepReport step_report_;
  StreamTable::News news_;
  std::vector<LeaseMessage> leases_;
  std::vector<SequenceId> closes_;
  std::vector<BlockSwap> swaps_;
  std::vector<engine::SequenceSpec> opens_;
  std::vector<ImageFill> fills_;
  std::vector<ImageSave> saves_;
  engine::StepBatch batch_;

  std::vector<SequenceId> filled_;           // rows of the running step that are copied and not computed
  bool has_copies_ = false;                  // the running step copies
  std::shared_ptr<const StepWork> copying_;  // while it does: read when the step has ended
  std::deque<SequenceId> saving_;            // sequences whose blocks are to be copied; some may have gone

  // Scratch, kept between decisions.
  scheduler::StepPlan plan_;
  std::vector<scheduler::BlockNeed> needs_;
  std::vector<scheduler::RequestNumber> candidates_;
  std::vector<Charge> charges_;
};

}  // namespace troupe::actors
