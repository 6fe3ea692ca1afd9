#include "actors/target_worker.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace troupe::actors {

struct TargetWorker::Stage {
  std::shared_ptr<const engine::LoadedModel> model;
  std::unique_ptr<engine::Executor> executor;  // made by the first job

  void start_afresh(engine::Team& team) {
    executor.reset();
    executor = std::make_unique<engine::Executor>(*model, team);
  }

  void apply(StepWork& work) {
    for (const SequenceId sequence : work.closes) executor->close(sequence);
    for (const BlockSwap& swap : work.swaps) executor->swap_block(swap.sequence, swap.index, swap.block);
    for (engine::SequenceSpec& spec : work.opens) executor->open(std::move(spec));
  }
};

TargetWorker::TargetWorker(caf::actor_config& cfg, Compute& compute, std::shared_ptr<const engine::LoadedModel> model)
    : ActorBase(cfg, "target worker"), compute_(compute), stage_(std::make_shared<Stage>()) {
  stage_->model = std::move(model);
}

caf::behavior TargetWorker::make_behavior() {
  compute_.post([stage = stage_, &compute = compute_] { stage->start_afresh(compute.team()); });
  return {
      [this](const msg::RunStep& step) { run(step); },
      [this](const msg::Quiesce& message) { quiesce(message.epoch); },
      [](const msg::Crash&) { throw std::runtime_error("a test asked for it"); },
  };
}

void TargetWorker::run(const msg::RunStep& message) {
  if (message.epoch <= quiesced_epoch_) return;  // of a batcher that is dead
  compute_.post([stage = stage_, work = message.work, sender = caf::actor_cast<caf::actor>(current_sender())] {
    stage->apply(*work);
    if (work->batch.items.empty()) return;
    auto result = std::make_shared<engine::StepResult>();
    stage->executor->step(work->batch, *result);
    caf::anon_send(sender, msg::StepResult{std::move(result)});
  });
}

void TargetWorker::quiesce(std::uint64_t epoch) {
  quiesced_epoch_ = std::max(quiesced_epoch_, epoch);
  compute_.post([stage = stage_, &compute = compute_, epoch, sender = caf::actor_cast<caf::actor>(current_sender())] {
    stage->start_afresh(compute.team());
    caf::anon_send(sender, msg::Quiesced{epoch});
  });
}

}  // namespace troupe::actors
