// What the actors share: plain, thread-safe, and older than any of them.
#pragma once

#include <chrono>
#include <cstdint>

#include "actors/failure.h"
#include "actors/gateway.h"
#include "actors/serving/model_state.h"
#include "actors/serving/stream_table.h"
#include "actors/status/counters.h"
#include "actors/status/memory_ledger.h"
#include "actors/threads/compute_pool.h"
#include "actors/threads/text_threads.h"

namespace troupe::actors {

// Texts up to this size are encoded inside an actor (some 100 us); longer ones on the text threads.
inline constexpr std::size_t kMaxTextInActor = 4096;
// So many deaths of actors in a row are survived while work waits and no step ends between them; one more ends the
// service. Where steps end, restarts cost time and nothing else.
inline constexpr std::size_t kMaxRestarts = 5;
// How long what died stays dead: doubled from one death to the next, and the shortest again after a quiet time.
inline constexpr std::chrono::milliseconds kShortestRestartDelay{10};
inline constexpr std::chrono::milliseconds kLongestRestartDelay{1000};
inline constexpr std::chrono::seconds kQuietTime{1};

class Embedder;

// Every member outlives the actor system: the gateway destroys the system first.
struct ServerContext {
  const GatewayOptions& options;
  StreamTable& streams;
  Counters& counters;
  MemoryLedger& memory;
  ModelState& model;
  TextThreads& texts;
  Compute& compute;
  FaultPoints faults{};
  const Embedder* embedder = nullptr;  // null: no vectors are served
};

}  // namespace troupe::actors
