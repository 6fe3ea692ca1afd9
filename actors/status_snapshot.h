// The server's status as plain values: everything that `troupe status` prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/request.h"
#include "actors/status/latency.h"
#include "cache/ids.h"
#include "engine/compute/profiler.h"

namespace troupe::actors {

// The states of a request, in the order it normally passes through them.
enum class RequestState : std::uint8_t {
  received,  // not checked yet, or waiting for the model to load
  encoding,  // its text is being turned into ids
  queued,    // waits for admission to the running batch (also after a preemption)
  running,   // takes part in steps
  parked,    // out of client credit
  ended,
};
inline constexpr std::size_t kNumRequestStates = 6;

// One live request, without its prompt and answer.
struct RequestView {
  RequestId request = 0;
  TenantId tenant{};
  RequestState state = RequestState::received;
  std::int32_t priority = 0;
  std::uint32_t prompt_tokens = 0;     // 0: not known yet
  std::uint32_t cached_tokens = 0;     // of the prompt
  std::uint32_t computed_tokens = 0;   // of the prompt, the cached ones included
  std::uint32_t generated_tokens = 0;  // 0 while running: its prompt is being computed
  std::uint32_t preemptions = 0;
  double age_seconds = 0;  // since its arrival
};

enum class Readiness { loading, ready, draining, failed };

// Resident memory of one kind (actors/status/memory_ledger.h lists them).
struct MemoryUse {
  std::string kind;
  std::uint64_t bytes = 0;
  // Exact for kinds that never shrink (weights, KV blocks, step buffers); for the others the maximum over all status
  // queries so far.
  std::uint64_t peak_bytes = 0;
};

// Everything `troupe status` prints. Counters count from the start of the server.
struct StatusSnapshot {
  Readiness readiness = Readiness::loading;
  double load_fraction = 0;
  std::string model;
  std::string numerics_id;
  std::string kernels;
  double uptime_seconds = 0;
  std::uint64_t requests_received = 0;
  std::vector<std::pair<std::string, std::uint64_t>> requests_ended;  // by outcome name, all names
  std::uint64_t requests_waiting = 0;                                 // received, encoding or queued
  std::uint64_t requests_running = 0;
  std::uint64_t requests_parked = 0;  // out of credit
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of those, served from the prefix cache
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t steps = 0;
  double step_seconds = 0;  // sum over all steps
  // While work waits: the time since a step ended, or for Embed requests a pass; the longer of both.
  double last_step_age_seconds = 0;
  bool stalled = false;  // that is longer than GatewayOptions::progress_timeout
  std::uint32_t blocks_total = 0;
  std::uint32_t blocks_free = 0;
  std::uint32_t blocks_cached = 0;           // in the prefix tree
  std::uint32_t blocks_referenced = 0;       // held by running sequences
  std::uint64_t prefix_blocks_computed = 0;  // blocks published to the tree
  std::uint64_t evictions = 0;
  // For models with sliding-window layers: the blocks of those layers.
  std::uint32_t window_blocks_total = 0;
  std::uint32_t window_blocks_free = 0;
  std::uint32_t window_blocks_cached = 0;
  std::uint32_t window_blocks_referenced = 0;
  std::uint64_t window_block_evictions = 0;
  // For models with recurrent state.
  std::uint32_t snapshots_total = 0;
  std::uint32_t snapshots_cached = 0;  // attached to a prefix
  std::uint64_t snapshot_hits = 0;     // sequences that began from a snapshot
  std::uint64_t snapshot_evictions = 0;
  std::uint64_t worker_restarts = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint32_t num_threads = 0;
  Latencies latencies;
  std::vector<MemoryUse> memory;  // the resident memory by kind
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  std::vector<RequestView> requests;               // all live ones, oldest first
  std::optional<engine::ProfileSnapshot> profile;  // step time by operation, if the profiler collects it
};

}  // namespace troupe::actors
