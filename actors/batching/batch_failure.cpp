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
  filled_.clear();
  give_up_saving();
  for (const scheduler::PlanItem& item : plan_.items) {
    Live* live = find_sequence(item.sequence);
    if (!live) continue;  // its stream ended during the step
    live->alone_until = planner_.computed(item.sequence) + item.num_skipped + item.num_tokens;
    planner_.suspect(item.sequence, live->alone_until);
    // Any row of a step with several may have caused the failure, and a single failure may be chance.
    const std::uint32_t num_faults = streams().record_fault(live->request());
    if (num_rows_ == 1 && num_faults >= kMaxFaults) fail_request(*live, failure.why, now);
  }
  planner_.abandon_step();
  // The worker has no sequence open any more. Computed K and V are in the blocks, which the running sequences still
  // hold; a recurrent state is lost, and its sequence is preempted to begin again from the last snapshot.
  closes_.clear();
  swaps_.clear();
  opens_.clear();
  // Forks before their first row are preempted too: the copy may not have been made, and its source may have been
  // reused.
  std::vector<Live*> unsure;
  for (const auto& [sequence, live] : sequences_) {
    if (live->phase != Phase::running) continue;
    live->new_blocks.clear();  // they are in the tables
    if (!live->copy_from.empty() || has_state()) {
      unsure.push_back(live);
    } else if (live->fill_until > 0) {
      live->opened = false;
    } else {
      open(*live, planner_.computed(sequence));
    }
  }
  for (Live* live : unsure) preempt(*live);
}

void Batch::fail_request(Live& live, const Failure& why, TimePoint now) {
  streams().end(live.request(), live.generation(), given_up(why, "to compute it"), now, &news_);
  drop(live);
}

// If the sequence is past the tokens of the failed step, computed alone, it did not cause the failure.
void Batch::clear_faults(Live& live) {
  if (live.alone_until == 0 || planner_.computed(live.sequence) < live.alone_until) return;
  live.alone_until = 0;
  streams().clear_faults(live.request());
}

}  // namespace troupe::actors
