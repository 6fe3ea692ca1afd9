// Keeps one model busy with everybody's requests. Plain logic: Batch, and scheduler/ and cache/ below it.
//
// Steps run back to back without polling: each event is followed by one turn of the batch, whose messages go to the
// keeper and, if no step is running, the worker. At most four messages per step: RunStep, StepResult, Lease, Leased.
//
// Receives  msg::Enqueue     a request, new or resumed
//           msg::Credit      the client lets us send more
//           msg::Forget      a stream has ended; msg::ForgetAll: all have
//           msg::Leased      from the keeper
//           msg::StepResult  from the worker; msg::StepFailed: the step broke
//           msg::Quiesced    from the worker: nothing of an older batcher runs any more
// Sends     msg::Lease, msg::BeginEpoch, msg::Quiesced to the keeper; msg::RunStep, msg::Quiesce to the worker
#pragma once

#include "actors/actor_base.h"
#include "actors/messages.h"
#include "actors/serving/batch.h"
#include "actors/status/counters.h"

namespace troupe::actors {

class Batcher : public ActorBase {
 public:
  Batcher(caf::actor_config& cfg, BatchOptions options, StreamTable& streams, Counters& counters, caf::actor keeper,
          caf::actor worker);

  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  TimePoint now();
  template <class Event>
  void handle(Event&& event);
  void forget(const msg::Forget& forget);
  void step_ended(const engine::StepResult& result);
  void step_over(bool continues);
  void turn();

  const BatchOptions options_;
  Counters& counters_;
  caf::actor keeper_;
  caf::actor worker_;
  StreamTable& streams_;
  Batch batch_;
  // When the requests were cancelled whose blocks come back with the next message to the keeper, or after the step.
  std::vector<TimePoint> cancelled_, cancelled_in_step_;
  bool continues_ = false;  // after its last step the batch had work left
  bool quiesced_ = false;   // no step of an older batcher runs any more: this one may begin
};

}  // namespace troupe::actors
