// Sends a plan of requests to a troupe server, with the client library, and records what each client received.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/load/drivers/as_user.h"
#include "bench/load/drivers/troupe_server.h"
#include "bench/load/plan.h"
#include "bench/load/record.h"
#include "config/result.h"

namespace troupe::load {

// The progress of a run.
struct Progress {
  double at_s = 0;
  std::uint64_t sent = 0;
  std::uint64_t ended = 0;
  std::optional<std::uint64_t> total{};  // requests of the plan; absent: not known
  std::uint64_t tokens = 0;              // received
  std::uint64_t refused = 0;
  std::uint64_t failed = 0;  // failed or lost
};

// What is asked of the server with a planned prompt.
enum class RequestKind : std::uint8_t {
  generate,
  embed,     // one vector of the prompt's ids; there is no answer of tokens
  tokenize,  // the ids of a text with as many words as the prompt has ids
};

struct TroupeOptions {
  std::string model{};  // empty: the only or default model
  RequestKind kind = RequestKind::generate;
  std::int32_t priority = 0;              // of all requests
  std::chrono::milliseconds deadline{0};  // of all requests; 0: none
  std::optional<User> user{};             // of the connections; absent: that of this process
  std::string cache_scope{};              // of all requests
  std::uint32_t connections = 1;          // shared round-robin; requests that disconnect or stop reading get their own
  std::uint32_t max_retries = 0;          // of a request that is refused with a retry_after
  std::chrono::milliseconds max_backoff{10'000};
  // If nothing arrives from the server for this long, all open requests count as lost.
  std::chrono::milliseconds patience{120'000};
  std::chrono::milliseconds sample_interval{100};
  const std::atomic<bool>* stop = nullptr;             // true: send nothing more, cancel running requests, and return
  std::function<void(const Progress&)> on_progress{};  // about four times a second, one call at a time
};

// The answer to a request, for the comparison with the same request run alone.
struct Answer {
  std::vector<TokenId> ids{};
  std::string text{};
};

struct TroupeRun {
  Run run{};
  std::vector<Answer> answers{};  // by index, as run.records
};

// One plan of several that run at once.
struct Lane {
  const Plan* plan = nullptr;
  TroupeOptions options{};  // sample_interval, stop and on_progress are those of the first lane
};

// The counts of the whole process and of the server, during all lanes.
struct TroupeRuns {
  std::vector<TroupeRun> lanes{};  // in the order given; times of all count from the same moment
  std::vector<ServerSample> samples{};
  double own_cpu_seconds = 0;
  std::optional<ServerAccount> account{};
};

// Runs the plans beside each other, and returns when every request has ended or is given up. Each lane has a thread,
// and one more for each of its connections. Error: a connection fails at the start (io, permission, busy). Later
// failures are in the records.
[[nodiscard]] Result<TroupeRuns> run_lanes(std::span<const Lane> lanes, TroupeServer& server);

// Runs one plan. Errors: as run_lanes().
[[nodiscard]] Result<TroupeRun> run_troupe(const Plan& plan, TroupeServer& server, const TroupeOptions& options);

}  // namespace troupe::load
