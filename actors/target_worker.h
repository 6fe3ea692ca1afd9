// Runs steps of the target model. Steps are computed on the compute pool, never in here: the worker hands a step
// over, and its result goes to the batcher as a message, so the worker is never deaf.
//
// The executor with its sequence states belongs to the worker, but only jobs of the compute pool touch it. A
// worker that dies leaves its last job to end; a successor's first job comes after it.
//
// A step that throws ends neither the worker nor the thread: its executor is thrown away, with whatever half a step
// left in it, and the batcher opens its sequences again.
//
// Receives  msg::RunStep   -> msg::StepResult or msg::StepFailed to the sender, unless the work has no step in it, or
// is
//                             of an epoch that was quiesced
//           msg::Quiesce   -> msg::Quiesced to the sender, once every step before it has ended; all sequences
//                             are closed
#pragma once

#include <cstdint>
#include <memory>

#include "actors/actor_base.h"
#include "actors/messages.h"
#include "actors/server_context.h"

namespace troupe::actors {

class TargetWorker : public ActorBase {
 public:
  TargetWorker(caf::actor_config& cfg, const ServerContext& context);  // once a model is loaded

  caf::behavior make_behavior() override;

 private:
  struct Stage;  // what jobs work on

  void run(const msg::RunStep& message);
  void quiesce(std::uint64_t epoch);

  Compute& compute_;
  std::shared_ptr<Stage> stage_;
  std::uint64_t quiesced_epoch_ = 0;
};

}  // namespace troupe::actors
