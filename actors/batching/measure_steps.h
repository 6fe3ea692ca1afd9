// What steps of a model take, measured before it is served.
#pragma once

#include <functional>

#include "engine/engine.h"
#include "scheduler/cost_model.h"

namespace troupe::actors {

struct MeasureOptions {
  // Of all steps together, without what comes between two of them. A step that would probably end later is not begun,
  // except for the first.
  double max_seconds = 0.2;
  std::uint32_t max_step_tokens = 512;
  // Called with each step, which it has to run before it returns: on the thread that leads the team. Empty: the caller
  // leads it.
  std::function<void(const std::function<void()>& step)> run_step{};
};

// Runs a few steps (one row, some rows, chunks of growing size) and has `costs` learn them. They write to the first
// blocks of the model's arenas, which must not be in use; nothing else remains. The first step is learned only if there
// is no time for another: it finds cold caches, and takes its memory for the first time. Throws what Executor::step()
// throws.
void measure_steps(const engine::LoadedModel& model, engine::Team& team, const MeasureOptions& options,
                   scheduler::CostModel& costs);

}  // namespace troupe::actors
