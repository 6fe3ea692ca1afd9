// The server's status as plain values: everything that `troupe status` prints.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "actors/requests/latency.h"
#include "actors/requests/request.h"
#include "cache/ids.h"
#include "config/metric.h"
#include "engine/compute/profiler.h"

namespace troupe::actors {

// The states of a request, in the order it normally passes through them.
enum class RequestState : std::uint8_t {
  received,  // not checked yet, or waiting for the model to load
  encoding,  // its text is being turned into ids
  queued,    // waits for a step: its first one, or the next one after a preemption
  running,   // takes part in steps
  parked,    // out of client credit
  ended,
};
inline constexpr std::size_t kNumRequestStates = 6;

// One live request, without its prompt and answer.
struct RequestView {
  RequestId request = 0;
  TenantId tenant{};
  std::uint32_t uid = 0;      // of its connection
  std::string tenant_name{};  // scheduler::label_of()
  std::string client_id{};    // Request::client_id
  RequestState state = RequestState::received;
  std::int32_t priority = 0;
  std::uint32_t prompt_tokens = 0;     // 0: not known yet
  std::uint32_t cached_tokens = 0;     // of the prompt
  std::uint32_t computed_tokens = 0;   // of the prompt, the cached ones included
  std::uint32_t generated_tokens = 0;  // 0 while running: its prompt is being computed
  std::uint32_t preemptions = 0;
  double age_seconds = 0;  // since its arrival
};

// on_request: not in memory; the first request for it has it loaded.
enum class Readiness { loading, ready, draining, failed, on_request };

// Resident memory of one kind (actors/status/memory_survey.h lists them).
struct MemoryUse {
  std::string kind;
  std::uint64_t bytes = 0;
  // Exact for kinds that never shrink (weights, KV blocks, step buffers); for the others the maximum over all status
  // queries so far.
  std::uint64_t peak_bytes = 0;
};

// Memory whose purpose the server knows.
struct KnownMemory {
  std::uint64_t weights = 0;          // packed, and tables
  std::uint64_t weights_on_heap = 0;  // the part of it that the allocator counts too
  std::uint64_t vocabulary = 0;
  std::uint64_t kv_cache = 0;      // blocks that were ever written
  std::uint64_t snapshots = 0;     // of recurrent state, that were ever written
  std::uint64_t step_buffers = 0;  // the executor's
  std::uint64_t forms = 0;         // of answers, compiled and kept
  std::uint64_t streams = 0;       // requests, prompts, answers and their forms of the live streams

  KnownMemory& operator+=(const KnownMemory& other) {
    weights += other.weights;
    weights_on_heap += other.weights_on_heap;
    vocabulary += other.vocabulary;
    kv_cache += other.kv_cache;
    snapshots += other.snapshots;
    step_buffers += other.step_buffers;
    forms += other.forms;
    streams += other.streams;
    return *this;
  }
};

// Live requests by state, of all users or of one.
struct StateMetrics {
  std::uint64_t waiting = 0;  // received, encoding or queued
  std::uint64_t running = 0;
  std::uint64_t parked = 0;

  void append_metrics(MetricList& out) const {
    out.gauge("num_requests_running", "Requests that take part in steps.", running, {.key = "requests_running"});
    out.gauge("num_requests_waiting",
              "Requests that wait for a step: their first one, or the next after they gave way.", waiting,
              {.key = "requests_waiting"});
    out.gauge("num_requests_parked", "Requests whose client does not read.", parked, {.key = "requests_parked"});
  }
};

// Tokens of all users' requests or of one user's.
struct TokenMetrics {
  std::uint64_t prompt = 0;
  std::uint64_t cached = 0;  // of those, served from the prefix cache
  std::uint64_t generated = 0;

  void append_metrics(MetricList& out) const {
    out.counter("prompt_tokens", "Tokens of prompts that were begun.", prompt);
    out.counter("generation_tokens", "Tokens that were generated.", generated, {.key = "generated_tokens"});
    out.counter("prefix_cache_queries", "Prompt tokens that were looked for in the prefix cache.", prompt);
    out.counter("prefix_cache_hits", "Prompt tokens that were found there.", cached, {.key = "cached_tokens"});
  }
};

// What one tenant, or several together, asked for and was served (serving/tenant_counters.h).
struct TenantUse {
  std::optional<TenantId> tenant{};  // none: of several
  std::string label;
  std::uint64_t received = 0;
  std::array<std::uint64_t, 3> ended{};                          // by scheduler::OutcomeKind
  std::vector<std::pair<std::string, std::uint64_t>> refused{};  // by limit, or outcome
  StateMetrics states{};
  TokenMetrics tokens{};
  double compute_seconds = 0;  // of steps and passes
  Histogram time_to_first_token{}, inter_token_latency{};
};

// One model of the server: whether it serves, and since when.
struct ModelHealth {
  std::string name;
  std::vector<std::string> aliases{};  // by which clients may call it, too
  Readiness readiness = Readiness::loading;
  double load_fraction = 0;
  bool stalled = false;   // work for it waits, and nothing has been done for longer than progress_timeout
  std::string problem{};  // why it failed; may name folders of this machine
  // Beside the one of this name that serves: it is loaded to take its place, or was replaced and ends its requests.
  bool replacing = false, retiring = false;
  bool on_request = false;  // it is loaded when a request asks for it, and put out for others
};

// Of the checks whether a model still is what was loaded, since its server's start (models/model_integrity.h).
struct IntegrityCounts {
  std::uint64_t canary_runs = 0;
  std::uint64_t canary_failures = 0;
  std::uint64_t weight_bytes = 0;   // that have checksums
  std::uint64_t checked_bytes = 0;  // compared with them
  std::uint64_t weight_failures = 0;
  std::int64_t last_canary = 0;  // the last good run, and the last good pass over all weights, in seconds of the Unix
  std::int64_t last_pass = 0;    // epoch; 0: none yet
  bool file_changed = false;     // a file on disk is not what was loaded
};

// The result of a check that was asked for.
struct ModelCheck {
  std::string name;
  bool canary_ok = false;
  bool weights_ok = false;
  std::uint64_t bytes = 0;  // of weights that were checked
  double seconds = 0;
  std::string file_change{};  // what has changed of its files on disk; empty: nothing
  std::string problem{};      // what is wrong; empty: nothing
};
// Or a refusal.
using ModelChecks = std::variant<std::vector<ModelCheck>, End>;
using OnModelsChecked = std::function<void(ModelChecks)>;

// What became of a wish to load or unload a model: its health, or an end of kind refused or failed.
using ModelChange = std::variant<ModelHealth, End>;
using OnModelChange = std::function<void(ModelChange)>;

// The same with its size, work and memory.
struct ModelReport {
  ModelHealth health;
  std::string numerics_id{};  // empty: not loaded
  std::string kernels{};
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  KnownMemory memory{};  // resident, without `streams`
  IntegrityCounts integrity{};
  StateMetrics states{};
  TokenMetrics tokens{};
  std::string tool_format{};     // in which it calls tools; empty: it calls none
  std::uint64_t tool_calls = 0;  // in answers that have ended
};

// Everything `troupe status` prints.
struct StatusSnapshot {
  Readiness readiness = Readiness::loading;  // ModelManager::readiness()
  double load_fraction = 0;
  std::string first_model;  // that the server was started with: series of the whole server keep its name
  std::string model;        // the default one, as the fields below
  std::string numerics_id;
  std::string kernels;
  bool stalled = false;  // of any model: ModelHealth::stalled
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint32_t num_threads = 0;
  std::vector<ModelReport> models;  // all, the default one first
  std::vector<MemoryUse> memory;    // the resident memory by kind
  MetricList metrics;
  std::vector<TenantUse> tenants;                  // in the order in which they came
  std::vector<RequestView> requests;               // all live ones, oldest first
  std::optional<engine::ProfileSnapshot> profile;  // step time by operation, if the profiler collects it

  // As of MetricList.
  double value(std::string_view key) const { return metrics.value(key); }
  std::uint64_t count(std::string_view key) const { return metrics.count(key); }
};

}  // namespace troupe::actors
