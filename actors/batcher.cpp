#include "actors/batcher.h"

#include <memory>
#include <stdexcept>
#include <utility>

namespace troupe::actors {

Batcher::Batcher(caf::actor_config& cfg, BatchOptions options, StreamTable& streams, Counters& counters,
                 caf::actor keeper, caf::actor worker)
    : ActorBase(cfg, "batcher"),
      options_(std::move(options)),
      counters_(counters),
      keeper_(std::move(keeper)),
      worker_(std::move(worker)),
      streams_(streams),
      batch_(options_, streams) {}

caf::behavior Batcher::make_behavior() {
  send(keeper_, msg::BeginEpoch{options_.epoch});
  send(worker_, msg::Quiesce{options_.epoch - 1});
  return {
      [this](const msg::Enqueue& enqueue) { handle([&] { batch_.enqueue(enqueue.task, now()); }); },
      [this](const msg::Credit& credit) { handle([&] { batch_.credit(credit.request, credit.granted); }); },
      [this](const msg::Forget& forget) { handle([&] { batch_.forget(forget.request); }); },
      [this](const msg::ForgetAll&) { handle([&] { batch_.forget_all(); }); },
      [this](const msg::Leased& leased) { handle([&] { batch_.keeper_replied(*leased.reply); }); },
      [this](const msg::StepResult& step) {
        counters_.step_ended(step.result->compute_seconds, now());
        handle([&] { batch_.step_ended(*step.result, now()); });
      },
      [this](const msg::StepFailed& step) { handle([&] { batch_.step_failed(step.failure, now()); }); },
      [this](const msg::Quiesced& quiesced) {
        send(keeper_, quiesced);
        quiesced_ = true;
        turn();
      },
      [this](const msg::Fence& fence) { send(keeper_, fence); },
      [](const msg::Crash&) { throw std::runtime_error("a test asked for it"); },
  };
}

void Batcher::on_exit() { keeper_ = worker_ = nullptr; }

TimePoint Batcher::now() { return home_system().clock().now(); }

// One event of the batch, and what follows from it. A batcher that throws dies; if one request's event made it, the
// next batcher will know.
template <class Event>
void Batcher::handle(Event&& event) {
  batch_.begin_event();
  try {
    event();
  } catch (...) {
    if (const RequestId request = batch_.at_work()) streams_.strike(request);
    throw;
  }
  turn();
}

void Batcher::turn() {
  if (!quiesced_) return;
  batch_.turn(now());
  // The step first: the worker computes while the keeper answers.
  if (auto work = batch_.take_work()) {
    if (!work->batch.items.empty()) counters_.step_began(now());
    send(worker_, msg::RunStep{options_.epoch, std::move(work)});
  }
  auto leases = batch_.take_leases();
  if (leases.empty()) return;
  send(keeper_, msg::Lease{std::make_shared<const std::vector<LeaseMessage>>(std::move(leases))});
}

}  // namespace troupe::actors
