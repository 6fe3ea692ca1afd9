#include "actors/unit/batcher.h"

#include <exception>

namespace troupe::actors {

Batcher::Batcher(caf::actor_config& cfg, BatchOptions options, StreamTable& streams,
                 std::shared_ptr<ComputeShares> shares, Counters& counters, const Mailboxes& mailboxes,
                 caf::actor keeper, caf::actor worker)
    : ActorBase(cfg, "batcher"),
      options_(std::move(options)),
      streams_(streams),
      shares_(std::move(shares)),
      counters_(counters),
      mailboxes_(mailboxes),
      keeper_(std::move(keeper)),
      worker_(std::move(worker)),
      batch_(options_, streams_, shares_->shares()) {}

Batcher::~Batcher() {
  const auto lock = shares_->lock();
  batch_.forget_all();
}

caf::behavior Batcher::make_behavior() {
  send(keeper_, msg::BeginEpoch{options_.epoch});
  send(worker_, msg::Quiesce{options_.epoch - 1});
  return {
      [this](const msg::Enqueue& enqueue) { handle([&] { batch_.enqueue(enqueue.task, now()); }); },
      [this](const msg::Credit& credit) { handle([&] { batch_.credit(credit.request, credit.granted); }); },
      [this](const msg::Forget& forget) {
        handle([&] {
          const bool in_step = batch_.forget(forget.request, now());
          if (forget.cancelled) (in_step ? cancelled_in_step_ : cancelled_).push_back(*forget.cancelled);
        });
      },
      [this](const msg::ForgetAll&) { handle([&] { batch_.forget_all(); }); },
      [this](const msg::SessionRead& read) { handle([&] { batch_.session_read(read.request); }); },
      [this](const msg::Leased& leased) { handle([&] { batch_.keeper_replied(*leased.reply, now()); }); },
      [this](const msg::StepResult& step) { step_ended(*step.result); },
      [this](const msg::StepFailed& step) {
        handle([&] {
          batch_.step_failed(step.failure, now());
          step_over(/*continues=*/false);
        });
      },
      [this](const msg::Proposed& proposed) {
        handle([&] { batch_.proposed(proposed.number, *proposed.reply, now()); });
      },
      [this](const msg::DrafterDied&) { handle([&] { batch_.drafter_died(); }); },
      [this](const msg::Quiesced& quiesced) {
        send(keeper_, quiesced);
        quiesced_ = true;
        handle([] {});
      },
      [this](const msg::Fence& fence) { send(keeper_, fence); },
      msg::throw_for_test,
  };
}

void Batcher::on_exit() { keeper_ = worker_ = nullptr; }

void Batcher::step_ended(const engine::StepResult& result) {
  counters_.step_ended(result, continues_, now());
  if (options_.on_step) options_.on_step(result);
  handle([&] {
    batch_.step_ended(result, now());
    counters_.drafted(batch_.take_draft_counts());
    step_over(batch_.has_work());
  });
}

// The blocks of requests cancelled during the step are given back with the next message to the keeper.
void Batcher::step_over(bool continues) {
  continues_ = continues;
  cancelled_.insert(cancelled_.end(), cancelled_in_step_.begin(), cancelled_in_step_.end());
  cancelled_in_step_.clear();
}

// Handles one event of the batch, then decide(), and then tells the sinks, without the lock: they may ask for the
// status. An exception ends the batcher; if it came from the work for one request, the fault is recorded in the stream
// table, where the next batcher finds it.
template <class Event>
void Batcher::handle(Event&& event) {
  std::exception_ptr thrown;
  try {
    const auto lock = shares_->lock();
    batch_.begin_event(now());
    try {
      event();
    } catch (...) {
      if (const RequestId request = batch_.at_work()) streams_.record_fault(request);
      throw;
    }
    decide();
  } catch (...) {
    thrown = std::current_exception();
  }
  streams_.tell(batch_.take_news());  // also before the batcher dies: no other actor does
  if (thrown) std::rethrow_exception(thrown);
}

void Batcher::decide() {
  if (!quiesced_) return;
  batch_.decide(now());
  if (auto drafts = batch_.take_draft_work()) {
    if (const caf::actor drafter = mailboxes_.get(Role::drafter)) {
      send(drafter, msg::Propose{std::move(drafts)});
    } else {  // it is being restarted
      batch_.drafter_died();
      batch_.decide(now());
    }
  }
  if (shares_->decided(batch_.step_running())) mailboxes_.send(Role::embedder, msg::TurnCame{});
  // The step is sent first, so that the worker computes while the keeper answers.
  if (auto work = batch_.take_work()) {
    if (work->batch.step != 0) counters_.step_began(now());
    send(worker_, msg::RunStep{options_.epoch, std::move(work)});
  }
  auto leases = batch_.take_leases();
  if (leases.empty() && cancelled_.empty()) return;
  send(keeper_, msg::Lease{std::make_shared<const std::vector<scheduler::LeaseMessage>>(std::move(leases)),
                           std::exchange(cancelled_, {})});
}

}  // namespace troupe::actors
