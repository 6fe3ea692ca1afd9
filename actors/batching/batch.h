// The running requests of one model: the plain logic of the batcher.
//
// Events come in (a request, credit, answers of the keeper, the result of a step); after each the batcher calls
// decide(), which decides everything that can be decided now, and then takes what is to be sent: messages for the
// keeper, and at most one step for the worker. States and ends go directly to the stream table; what a step's rows
// report waits until the next step is taken. Sinks and on_usage are told of nothing until take_news() is given to
// StreamTable::tell(), which the batcher does without its lock.
//
// What is admitted, preempted, planned and committed is ServingLoop's (scheduler/serving_loop.h), also the phases of a
// request; the lease messages are those of cache/lease_book.h. Here is what that does not know: streams and their
// credit, text and stop strings, deadlines, drafts, the contents of sessions, and which request made a step fail.
//
// Sessions (sessions/sessions.h, batch_sessions.cpp). If the cache has lost what a session's file has, the contents are
// read to memory and copied to the blocks instead of computed. At the end of a turn the blocks are copied to memory.
//
// Not thread-safe: the batcher owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/batching/draft_counts.h"
#include "actors/batching/step_work.h"
#include "actors/serving/answer.h"
#include "actors/serving/stream_table.h"
#include "engine/drafting/earlier_answers.h"
#include "scheduler/experience.h"
#include "scheduler/serving_loop.h"
#include "scheduler/shares/admission.h"
#include "scheduler/shares/fair_shares.h"

namespace troupe::actors {

struct BatchOptions {
  std::uint64_t epoch = 1;  // higher than that of every batch before it on the same keeper and worker
  scheduler::Capacity capacity;
  scheduler::PlannerOptions planner;
  std::shared_ptr<const engine::Tokenizer> tokenizer;      // null: answers have no text
  engine::ReasoningMarkers reasoning{};                    // of the model
  const engine::chat::ToolFormat* tool_format = nullptr;   // of the model; null: its requests have no tools
  std::function<void(const engine::StepResult&)> on_step;  // GatewayOptions::on_step
  FaultPoints faults{};
  bool has_draft_model = false;
  engine::Speculation speculation{};                          // of requests that do not choose another
  std::shared_ptr<scheduler::Experience> experience{};        // of earlier batches of the model; null: begins with none
  std::shared_ptr<engine::EarlierAnswers> earlier_answers{};  // the same
  // Called from any thread, when the contents of a request's session were read: the next event is session_read().
  std::function<void(RequestId)> on_session_read{};
  // Called from any thread: a tenant's session was written, for so many seconds of computing. May be empty.
  std::function<void(TenantId, double)> on_session_written{};
};

class Batch final : private scheduler::ServingDriver {
 public:
  // `streams` and `shares` must outlive the batch. Call forget_all() before it is destroyed: what is counted in
  // `shares` then is never taken out.
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
    shares_.refresh();
  }
  // The request that was being worked on since begin_event(), for when that threw; 0: not one request alone.
  [[nodiscard]] RequestId at_work() const { return at_work_; }

  // The draft worker's answer.
  void proposed(std::uint64_t number, const engine::DraftReply& reply, TimePoint now);
  // It died, or there is none: nothing is drafted by it for the next step.
  void drafter_died();
  // Decides what to do next. Call after every event, then send what the take functions return.
  void decide(TimePoint now);
  [[nodiscard]] std::vector<scheduler::LeaseMessage> take_leases();  // for the keeper, in order; maybe none
  [[nodiscard]] std::shared_ptr<StepWork> take_work();               // for the worker; null: nothing
  [[nodiscard]] std::shared_ptr<const DraftWork> take_draft_work();  // for the draft worker; null: nothing
  // Call after the step was taken and sent: reports the rows of the step before to the stream table, and returns what
  // its sinks are to be told.
  [[nodiscard]] StreamTable::News take_news() {
    report();
    return std::exchange(news_, {});
  }
  // Since the last call.
  [[nodiscard]] DraftCountsByDrafter take_draft_counts() { return std::exchange(draft_counts_, {}); }
  [[nodiscard]] std::size_t num_requests() const { return loop_.requests().size(); }
  // Some running sequence is not parked, so steps go on without a client's credit.
  [[nodiscard]] bool has_work() const { return loop_.planner().num_running() > 0; }
  [[nodiscard]] bool step_running() const { return loop_.step_running(); }

 private:
  using Phase = scheduler::ServingPhase;
  struct Live;

  // What the rows of a step report waits until the next step is sent, or until something else is reported: it is not
  // needed to plan, and takes as long as planning.
  void report();
  StreamTable& streams() {
    report();
    return streams_;
  }
  Live* find(RequestId request);
  Live* find_sequence(SequenceId sequence);
  static Live& live_of(scheduler::ServingRequest& request);
  static const Live& live_of(const scheduler::ServingRequest& request);
  void enter(Live& live, TimePoint now);

  // ServingDriver.
  bool admitted(scheduler::ServingRequest& request) override;
  bool starts(scheduler::ServingRequest& request) override;
  bool preempted(scheduler::ServingRequest& request, bool was_parked) override;
  bool reads_contents(scheduler::ServingRequest& request, std::uint32_t num_cached) override;
  void contents_used(scheduler::ServingRequest& request) override;
  void saved(scheduler::ServingRequest& request) override;
  void dropped(scheduler::ServingRequest& request) override;

  // Deadlines (batch_deadlines.cpp).
  bool ask_for_promise(Live& live);
  void decide_promise(Live& live, std::uint32_t num_cached, TimePoint now);
  void promise(const Live& first);
  [[nodiscard]] double safe_seconds(const Live& live, TimePoint now) const;
  void refuse(Live& first, const scheduler::PromiseAnswer& answer, TimePoint now);
  double book(const Live& refused, const scheduler::PromiseAnswer& answer, TimePoint now);
  void settle_promise(Live& live, bool is_last, TimePoint now);
  scheduler::PromiseMargins& margins_of(const Live& live) const;
  scheduler::ForecastServer forecast_server() const;
  scheduler::ForecastRequest forecast_request(const Live& live, TimePoint now) const;
  void learn_pace(const engine::StepResult& result);
  void learn_use(const Live& live, double seconds, TimePoint now);

  // Drafts (batch_drafts.cpp).
  void begin_drafts(Live& live);
  bool may_draft(const Live& live) const;
  bool ask_for_drafts();
  void learn_pass(const engine::DraftReply& reply);
  void charge_drafts(double seconds, TimePoint now);
  bool may_verify(const Live& live) const;
  void offer_drafts();
  void propose_from_text(Live& live, std::size_t& room);
  void learn_answer(const Live& live);
  [[nodiscard]] bool may_run_ahead(const Live& live) const;
  static std::span<const TokenId> own_proposal(const Live& live);
  void offer_own_proposal(Live& live);
  std::uint32_t proposal_left(const Live& live) const;
  void check_own_proposal(Live& live, const engine::ItemResult& row);
  void count_draft(Drafter drafter, const engine::ItemResult& row, std::uint32_t num_draft);
  void learn_from_draft(Live& live, const engine::ItemResult& row, std::uint32_t num_draft);

  // Sessions (batch_sessions.cpp).
  std::shared_ptr<const engine::SequenceImage> image_of(const Live& live) const;
  void fills_ended();
  std::shared_ptr<SessionSaving> begin_saving(Live& live, scheduler::Outcome outcome);
  void charge_copies(TimePoint now);

  // Running.
  bool set_state(const Live& live, RequestState state);  // as StreamTable::set_state()
  void step_is_over(std::uint64_t epoch, std::uint64_t step);
  void charge_step(double seconds, scheduler::StepEnd how, const engine::StepResult* result, TimePoint now);
  void fail_request(Live& live, const Failure& why, TimePoint now);
  void fail_form(Live& live, TimePoint now);
  std::shared_ptr<StepWork> to_work(scheduler::ServingWork&& planned);
  engine::SequenceSpec spec_of(scheduler::SequenceOpening&& opening) const;
  void clear_faults(Live& live);
  void take_row(Live& live, const engine::ItemResult& row, std::uint32_t num_draft, TimePoint now);
  void take_prompt_scores(Live& live, const engine::ItemResult& row, Emission& out);
  void row_computed(Live& live, const engine::ItemResult& row, std::size_t num_taken, std::uint32_t num_draft);
  bool out_of_credit(Live& live, TimePoint now);
  void end(Live& live, scheduler::Outcome outcome, std::string stop, TimePoint now);

  BatchOptions options_;
  StreamTable& streams_;
  scheduler::FairShares& shares_;
  scheduler::ServingLoop loop_;
  std::optional<TimePoint> last_step_ended_;  // none: there was a pause after it
  RequestId at_work_ = 0;
  TimePoint now_{};  // of the event
  DraftCountsByDrafter draft_counts_{};
  std::shared_ptr<DraftWork> draft_work_;    // to be sent
  std::uint64_t draft_number_ = 0;           // of the last work
  std::uint64_t drafted_step_ = 0;           // for which drafts were asked for
  bool drafts_pending_ = false;              // the next step waits for them
  std::vector<RequestId> drafting_;          // requests that were asked for
  std::vector<std::uint64_t> draft_closes_;  // to be sent
  double pass_seconds_ = 0;                  // that one pass of the draft model takes, of late
  std::uint64_t num_passes_ = 0;             // that this is learned from

  // To be sent.
  std::shared_ptr<StepWork> work_;
  StepReport step_report_;
  StreamTable::News news_;

  std::shared_ptr<const StepWork> copying_;  // while the running step copies: read when it has ended
  // Scratch.
  std::vector<Charge> charges_;
  std::vector<TokenId> earlier_;
};

}  // namespace troupe::actors
