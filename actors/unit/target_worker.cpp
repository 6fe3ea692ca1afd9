#include "actors/unit/target_worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

namespace troupe::actors {

struct TargetWorker::Runner {
  std::shared_ptr<const engine::LoadedModel> model;
  engine::Team& team;
  FaultPoints faults;
  std::unique_ptr<engine::Executor> executor;  // made by the first step, and by the next after one that failed

  std::shared_ptr<const engine::StepResult> run(StepWork& work) {
    for (ImageSave& save : work.saves) {
      const TimePoint began = std::chrono::steady_clock::now();
      save.saving->image().save(*model, save.tables, save.from, save.to);
      if (save.state_of != 0) save.saving->image().save_state(executor->state(save.state_of));
      save.seconds = seconds_between(began, std::chrono::steady_clock::now());
    }
    if (executor) {
      for (const SequenceId sequence : work.closes) executor->close(sequence);
    }
    if (work.batch.step == 0) return nullptr;
    if (!executor) executor = std::make_unique<engine::Executor>(*model, team);
    for (ImageFill& fill : work.fills) {
      const TimePoint began = std::chrono::steady_clock::now();
      fill.image->restore(*model, fill.tables, fill.from, fill.to);
      fill.seconds = seconds_between(began, std::chrono::steady_clock::now());
    }
    for (engine::SequenceSpec& spec : work.opens) executor->open(std::move(spec));
    for (const scheduler::BlockSwap& swap : work.swaps)
      executor->swap_block(swap.sequence, swap.group, swap.index, swap.block);
    if (faults.before_step) faults.before_step(work.batch);
    auto result = std::make_shared<engine::StepResult>();
    executor->step(work.batch, *result);
    if (work.batch.items.empty()) result->kernels_began = result->kernels_ended = std::chrono::steady_clock::now();
    return result;
  }
};

TargetWorker::TargetWorker(caf::actor_config& cfg, std::shared_ptr<const engine::LoadedModel> model, Compute& compute,
                           scheduler::JobSource source, FaultPoints faults)
    : ActorBase(cfg, "target worker"),
      compute_(compute),
      source_(source),
      runner_(std::make_shared<Runner>(Runner{
          .model = std::move(model), .team = compute.team(), .faults = std::move(faults), .executor = nullptr})) {}

caf::behavior TargetWorker::make_behavior() {
  return {
      [this](const msg::RunStep& step) { run(step); },
      [this](const msg::Quiesce& quiesce) {
        quiesced_epoch_ = std::max(quiesced_epoch_, quiesce.epoch);
        const auto end_all = [runner = runner_, epoch = quiesce.epoch, asker = sender()] {
          runner->executor.reset();
          caf::anon_send(asker, msg::Quiesced{epoch});
        };
        compute_.post(source_, {.kind = scheduler::JobKind::bookkeeping, .run = end_all});
      },
      msg::throw_for_test,
  };
}

void TargetWorker::run(const msg::RunStep& message) {
  if (message.epoch <= quiesced_epoch_) return;  // from a batcher that has been replaced
  const bool has_step = message.work->batch.step != 0;
  scheduler::Job job{.kind = has_step ? scheduler::JobKind::serving : scheduler::JobKind::bookkeeping,
                     .tenants = message.work->tenants,
                     .run = {}};
  job.run = [runner = runner_, work = message.work, asker = sender()] {
    const TimePoint began = std::chrono::steady_clock::now();
    try {
      if (auto result = runner->run(*work)) caf::anon_send(asker, msg::StepResult{std::move(result)});
    } catch (const engine::Stopped&) {
      runner->executor.reset();  // the server ends: no batcher waits for this step
    } catch (...) {
      runner->executor.reset();  // it may be in the middle of a step
      StepFailure failure{.epoch = work->batch.epoch,
                          .step = work->batch.step,
                          .why = failure_of(std::current_exception()),
                          .seconds = seconds_between(began, std::chrono::steady_clock::now())};
      spdlog::error("step {} with {} sequences broke: {}", failure.step, work->batch.items.size(), failure.why.what);
      caf::anon_send(asker, msg::StepFailed{std::move(failure)});
    }
  };
  compute_.post(source_, std::move(job));
}

}  // namespace troupe::actors
