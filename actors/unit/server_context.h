// What the actors share: plain and thread-safe, built before any actor.
#pragma once

#include <functional>

#include "actors/gateway_options.h"
#include "actors/requests/failure.h"
#include "actors/serving/stream_table.h"
#include "actors/status/memory_survey.h"
#include "actors/threads/compute_pool.h"
#include "actors/threads/text_threads.h"

namespace troupe::actors {

// Shared by all units. Every member outlives the actor system: the gateway destroys the system first.
struct ServerContext {
  const GatewayOptions& options;
  StreamTable& streams;
  const MemorySurvey& memory;
  TextThreads& texts;
  Compute& compute;
  TimePoint started{};
  FaultPoints faults{};
  // Loads the model of a unit once more, in the place of that unit, which was taken out. Empty: it stays out.
  std::function<void(UnitId)> load_again{};
};

}  // namespace troupe::actors
