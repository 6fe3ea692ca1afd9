// What the actors share: plain and thread-safe, built before any actor.
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
// At most this many actor deaths in a row are answered by a restart while work waits and no step ends between them; one
// more ends the service. While steps end, actors are restarted without limit.
inline constexpr std::size_t kMaxRestarts = 5;
// Delay from an actor's death to its restart: doubled with each death, back to the shortest after kQuietTime without
// one.
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
  const Embedder* embedder = nullptr;  // null: Embed is not served
};

}  // namespace troupe::actors
