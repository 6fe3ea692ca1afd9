// What the actors share: plain, thread-safe, and older than any of them.
#pragma once

#include <cstdint>

#include "actors/compute_pool.h"
#include "actors/counters.h"
#include "actors/gateway.h"
#include "actors/model_state.h"
#include "actors/stream_table.h"
#include "actors/thread_pool.h"

namespace troupe::actors {

// Texts up to this size are encoded inside an actor (some 100 us); longer ones on the text threads.
inline constexpr std::size_t kMaxTextInActor = 4096;
// So many deaths of actors within the window are survived; one more ends the service.
inline constexpr std::size_t kMaxRestarts = 5;
inline constexpr std::chrono::seconds kRestartWindow{60};

// Every member outlives the actor system; whoever makes the house sees to it.
struct House {
  const GatewayOptions& options;
  StreamTable& streams;
  Counters& counters;
  ModelState& model;
  ThreadPool& texts;
  Compute& compute;
};

}  // namespace troupe::actors
