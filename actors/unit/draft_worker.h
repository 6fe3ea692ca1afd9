// Proposes tokens with the draft model. Plain logic: engine::Proposer. As the target worker it computes on the
// compute pool, never inside the actor; between two steps there is at most one of its jobs.
//
// Its sequences need no care: what a dead worker had, or a job that threw, is answered as lost, and told again with the
// next ask. While there is no worker the batcher drafts nothing.
//
// Receives  msg::Propose   -> msg::Proposed to the sender
#pragma once

#include "actors/threads/compute_pool.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"

namespace troupe::actors {

class DraftWorker : public ActorBase {
 public:
  DraftWorker(caf::actor_config& cfg, std::shared_ptr<const engine::LoadedModel> draft,
              std::shared_ptr<const engine::LoadedModel> target, Compute& compute, scheduler::JobSource source);

  caf::behavior make_behavior() override;

 private:
  struct Runner;  // runs the drafts, in jobs: the models and the drafter

  Compute& compute_;
  const scheduler::JobSource source_;
  std::shared_ptr<Runner> runner_;
};

}  // namespace troupe::actors
