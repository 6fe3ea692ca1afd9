// What a Batch does after a failed step: no sequence loses a token, and the request that caused the failure is found.
#include <utility>

#include "actors/batching/batch.h"
#include "actors/batching/batch_live.h"
#include "actors/requests/request_check.h"

namespace troupe::actors {

void Batch::step_failed(const StepFailure& failure, TimePoint now) {
  step_is_over(failure.epoch, failure.step);
  charge_step(failure.seconds, scheduler::StepEnd::failed, nullptr, now);
  charge_copies(now);
  for (const scheduler::PlanItem& item : loop_.plan().items) {
    Live* live = find_sequence(item.sequence);
    if (!live) continue;  // its stream ended during the step
    loop_.suspect(item);
    // Any row of a step with several may have caused the failure, and a single failure may be chance.
    const std::uint32_t num_faults = streams().record_fault(live->request());
    if (loop_.num_rows() == 1 && num_faults >= kMaxFaults) fail_request(*live, failure.why, now);
  }
  loop_.abandon_step();
}

void Batch::fail_request(Live& live, const Failure& why, TimePoint now) {
  streams().end(live.request(), live.generation(), given_up(why, "to compute it"), now, &news_);
  loop_.drop(live);
}

void Batch::fail_form(Live& live, TimePoint now) {
  streams().end(
      live.request(), live.generation(),
      ended_as(scheduler::Outcome::internal,
               "which token may follow in the form that is asked for takes too much work to tell; make its patterns, "
               "counts and alternatives simpler"),
      now, &news_);
  loop_.drop(live);
}

// If the sequence is past the tokens of the failed step, computed alone, it did not cause the failure.
void Batch::clear_faults(Live& live) {
  if (live.alone_until == 0 || loop_.planner().computed(live.sequence) < live.alone_until) return;
  live.alone_until = 0;
  streams().clear_faults(live.request());
}

}  // namespace troupe::actors
