// What the actors share: plain and thread-safe, built before any actor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "actors/failure.h"
#include "actors/gateway.h"
#include "actors/serving/compute_shares.h"
#include "actors/serving/model_state.h"
#include "actors/serving/stream_table.h"
#include "actors/status/counters.h"
#include "actors/status/memory_survey.h"
#include "actors/threads/compute_pool.h"
#include "actors/threads/text_threads.h"

namespace troupe::actors {

// Texts up to this size are encoded inside an actor (some 100 us); longer ones on the text threads.
inline constexpr std::size_t kMaxTextInActor = 4096;
// At most this many actor deaths in a row are answered by a restart while work waits and no step ends between them; one
// more ends the service of the model. While steps end, actors are restarted without limit.
inline constexpr std::size_t kMaxRestarts = 5;
// Delay from an actor's death to its restart: doubled with each death, back to the shortest after kQuietTime without
// one.
inline constexpr std::chrono::milliseconds kShortestRestartDelay{10};
inline constexpr std::chrono::milliseconds kLongestRestartDelay{1000};
inline constexpr std::chrono::seconds kQuietTime{1};

class Mailboxes;
struct UnitQuestions;

// Shared by all units. Every member outlives the actor system: the gateway destroys the system first.
struct ServerContext {
  const GatewayOptions& options;
  StreamTable& streams;
  const MemorySurvey& memory;
  TextThreads& texts;
  Compute& compute;
  FaultPoints faults{};
};

// Shared by the actors of one unit, which owns the members below.
struct UnitContext : ServerContext {
  UnitId unit;
  ModelState& model;
  Counters& counters;
  std::shared_ptr<ComputeShares> shares;
  Mailboxes& mailboxes;
  UnitQuestions& questions;
  // Loads the model unless it is loaded already, and sets `model`. A job of the compute pool; throws engine::Stopped
  // only. Empty: it is loaded elsewhere (tests).
  std::function<void()> load;
};

}  // namespace troupe::actors
