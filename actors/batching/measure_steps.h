// What steps of a model take, measured before it is served.
#pragma once

#include "engine/engine.h"
#include "scheduler/cost_model.h"

namespace troupe::actors {

struct MeasureOptions {
  double max_seconds = 0.2;  // a step that would probably end later is not begun, except for the first
  std::uint32_t max_step_tokens = 512;
};

// Runs a few steps (one row, some rows, chunks of growing size) and has `costs` learn them. They write to the first
// blocks of the model's arenas, which must not be in use; nothing else remains. The first step is learned only if there
// is no time for another: it finds cold caches, and takes its memory for the first time. Throws what Executor::step()
// throws.
void measure_steps(const engine::LoadedModel& model, engine::Team& team, const MeasureOptions& options,
                   scheduler::CostModel& costs);

}  // namespace troupe::actors
