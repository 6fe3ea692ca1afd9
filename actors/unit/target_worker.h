// Runs steps of the target model. Steps are computed on the compute pool, never inside the actor: the worker posts a
// step as a job and the job sends the result to the batcher, so the worker handles messages during a step.
//
// The executor with its sequence states belongs to the worker, but only jobs of the compute pool access it. When a
// worker dies its last job still runs to its end; the next worker's first job runs after it.
//
// A step that throws ends neither the worker nor the thread: its executor, which may be in the middle of a step, is
// destroyed, and the batcher opens its sequences again.
//
// Receives  msg::RunStep   -> msg::StepResult or msg::StepFailed to the sender; nothing if the work has no step in it
//                             or is of a quiesced epoch
//           msg::Quiesce   -> msg::Quiesced to the sender, once every step before it has ended; all sequences
//                             are closed
#pragma once

#include "actors/requests/failure.h"
#include "actors/threads/compute_pool.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"

namespace troupe::actors {

class TargetWorker : public ActorBase {
 public:
  TargetWorker(caf::actor_config& cfg, std::shared_ptr<const engine::LoadedModel> model, Compute& compute,
               scheduler::JobSource source, FaultPoints faults);

  caf::behavior make_behavior() override;

 private:
  struct Runner;  // runs the steps, in jobs: the model, the executor and what else they use

  void run(const msg::RunStep& message);

  Compute& compute_;
  const scheduler::JobSource source_;
  std::shared_ptr<Runner> runner_;
  std::uint64_t quiesced_epoch_ = 0;
};

}  // namespace troupe::actors
