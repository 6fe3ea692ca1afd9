// Runs the requests of all clients on one model, batched into steps. Plain logic: Batch, which uses scheduler/ and
// cache/.
//
// Steps run back to back without polling: after each event Batch::decide() decides what to do next, and its messages go
// to the keeper and, if no step is running, the worker. At most four messages per step: RunStep, StepResult, Lease,
// Leased.
//
// Receives  msg::Enqueue     a request, new or resumed
//           msg::Credit      the client has granted more tokens
//           msg::Forget      a stream has ended; msg::ForgetAll: all have
//           msg::SessionRead the contents of a request's session were read
//           msg::Leased      from the keeper
//           msg::StepResult  from the worker; msg::StepFailed: the step threw
//           msg::Proposed    from the draft worker; msg::DrafterDied: it may not answer any more
//           msg::Quiesced    from the worker: no step of an older batcher runs any more
//           msg::Fence       from telemetry: passed on to the keeper
// Sends     msg::Lease, msg::BeginEpoch, msg::Quiesced to the keeper; msg::RunStep, msg::Quiesce to the worker;
//           msg::Propose to the draft worker;
//           msg::TurnCame to the embed worker
#pragma once

#include "actors/batching/batch.h"
#include "actors/status/counters.h"
#include "actors/threads/compute_shares.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"

namespace troupe::actors {

class Batcher : public ActorBase {
 public:
  // mailboxes: of the draft worker and the embed worker.
  Batcher(caf::actor_config& cfg, BatchOptions options, StreamTable& streams, std::shared_ptr<ComputeShares> shares,
          Counters& counters, const Mailboxes& mailboxes, caf::actor keeper, caf::actor worker);
  ~Batcher() override;

  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  template <class Event>
  void handle(Event&& event);
  void step_ended(const engine::StepResult& result);
  void step_over(bool continues);
  void decide();

  const BatchOptions options_;
  StreamTable& streams_;
  const std::shared_ptr<ComputeShares> shares_;
  Counters& counters_;
  const Mailboxes& mailboxes_;
  caf::actor keeper_;
  caf::actor worker_;
  Batch batch_;
  // For Latency::cancel_latency: when requests were cancelled. The blocks of the first are given back with the next
  // message to the keeper, those of the second after the running step.
  std::vector<TimePoint> cancelled_, cancelled_in_step_;
  bool continues_ = false;  // the batch had work left after its last step
  bool quiesced_ = false;   // msg::Quiesced has arrived: this batcher may run steps
};

}  // namespace troupe::actors
