// The results of a load run: one record per request, and periodic samples of the server. Plain values, filled in by the
// drivers (one for troupe's socket, one for OpenAI-compatible HTTP) and read by the reports.
//
// All times are seconds since the start of the run on the steady clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::load {

// Tokens that came together: a client found them in one read of its socket, in one message or several. Between them it
// waited for nothing, whatever a clock that is read for each of them says.
struct Arrival {
  double at_s = 0;
  std::uint32_t num_tokens = 0;
};

// The fault that the run injected into a request; garbage is sent on another connection and must not affect the
// request.
enum class Fault : std::uint8_t { none, cancel, disconnect, slow_reader, garbage };

// How a request ended, as its client saw it.
enum class EndKind : std::uint8_t {
  none,     // it never ended: the server lost it
  done,     // complete, ended by its deadline, or cancelled by its client
  refused,  // nothing was computed
  failed,   // the server failed
  lost,     // the connection broke
};

struct RequestRecord {
  std::uint64_t index = 0;                // in order of intended_s
  std::uint32_t client = 0;               // closed loop: which client; open loop: which connection
  std::optional<std::uint32_t> prefix{};  // which shared prefix the prompt begins with
  double intended_s = 0;                  // when it should have been sent: latencies count from here
  double sent_s = 0;                      // when it was sent
  double end_s = 0;                       // when its end arrived
  std::vector<Arrival> arrivals{};        // ascending
  std::optional<double> queue_s{};        // arrival to first step, as the server counts; absent: not reported
  std::uint32_t prompt_tokens = 0;        // as the server counts
  std::uint32_t cached_tokens = 0;        // of those, from the prefix cache
  std::uint32_t completion_tokens = 0;    // received
  std::uint32_t preemptions = 0;          // as the server counts
  std::optional<double> compute_s{};      // its part of the time of steps, by its receipt; absent: it has none
  std::uint32_t retries = 0;              // sent again after a refusal with retry-after
  std::uint32_t num_ends = 0;             // ends received for it; if not 1, the server is faulty
  EndKind kind = EndKind::none;           // of the last end
  std::string outcome{};                  // "length", "queue_full", "http_503", ...
  std::string message{};                  // refused, failed, lost: the server's message
  std::string limit{};                    // refused: the name of the limit that was met, if the server says
  std::optional<double> retry_after_s{};  // refused: the server's advice; absent: it gave none
  Fault fault = Fault::none;              // injected into this request
  std::optional<bool> verified{};         // equal to the same request run alone; absent: not compared
  std::optional<double> fault_at_s{};     // when the fault was injected
};

// Adds tokens that a read at `at_s` brought; those of one read, which have its time, are one arrival.
inline void add_arrival(RequestRecord& record, double at_s, std::uint32_t num_tokens) {
  if (!record.arrivals.empty() && record.arrivals.back().at_s == at_s)
    record.arrivals.back().num_tokens += num_tokens;
  else
    record.arrivals.push_back({at_s, num_tokens});
}

// The server's state at a moment.
struct ServerSample {
  double at_s = 0;
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::uint64_t parked = 0;
  std::uint64_t generated_tokens = 0;  // since the server's start, as are the next two
  std::uint64_t steps = 0;
  double step_seconds = 0;
  std::uint64_t blocks_free = 0;
  std::uint64_t blocks_total = 0;
};

// The server's counters of a run: differences between its beginning and its end. They include the requests of other
// users of the server.
struct ServerAccount {
  // Whether the server came to rest at the end: no request waiting, running or parked, and no block held. Only then do
  // the counters below show lost or doubled requests.
  bool at_rest = false;
  std::uint64_t received = 0;  // requests, admitted or not
  std::uint64_t ended = 0;     // of all outcomes
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t prefix_blocks_computed = 0;
  std::uint64_t evictions = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t worker_restarts = 0;
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;
  std::uint64_t connections_broken = 0;  // by the server: garbage, a client that did not read
  std::uint64_t requests_before = 0;     // of other users: waiting, running or parked at the beginning
  std::uint64_t requests_left = 0;       // waiting, running or parked at the end
  std::uint64_t blocks_held = 0;         // by sequences at the end
};

// Connections that sent garbage, by how the server reacted.
struct GarbageCount {
  std::uint64_t sent = 0;
  std::uint64_t closed = 0;   // the server closed the connection, as it should
  std::uint64_t refused = 0;  // the server did not accept the connection (its limits)
  std::uint64_t ignored = 0;  // neither in time
};

// Why a server serves this client no more.
struct ShutOutBy {
  bool denied = false;  // it refuses the client; else it cannot be reached
  std::string why{};    // the message that the first request got
};

// Limits on one request's latencies, in milliseconds; absent: no such limit.
struct Goodput {
  std::optional<double> ttft_ms{};
  std::optional<double> tpot_ms{};
  std::optional<double> e2el_ms{};

  [[nodiscard]] bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};

// One of several users that a run plays at once, each with requests of its own.
struct Tenant {
  std::string name{};
  double weight = 1;                   // of its due share
  std::optional<std::uint32_t> uid{};  // of its connections; absent: that of this process
  Goodput limits{};
  bool shares = true;  // false: asks for nothing that the model computes, and has no share (fairness.h)
  std::vector<std::pair<std::string, std::string>> description{};  // as Run::description
  std::size_t first = 0, count = 0;                                // its place in Run::records
};

struct Run {
  // Configuration, versions, machine and seed in printing order: ("clients", "64"), ...
  std::vector<std::pair<std::string, std::string>> description{};
  double duration_s = 0;                   // first intended send to last end
  std::vector<Tenant> tenants{};           // empty: the run has one load, and no tenants
  std::vector<RequestRecord> records{};    // by tenant, and then by index
  std::vector<ServerSample> samples{};     // by time; empty if the server has no status
  double own_cpu_seconds = 0;              // of this process during the run: its overhead
  double max_send_lag_s = 0;               // the worst sent_s - intended_s
  bool interrupted = false;                // ended before the end of the plan
  std::optional<ShutOutBy> shut_out{};     // the server served this client no more; then the rest was not sent
  std::optional<ServerAccount> account{};  // absent if the server has no such counters
  GarbageCount garbage{};
  std::uint64_t stray_frames = 0;  // frames for ended requests: a second end, or tokens after the end
};

// The requests of a tenant.
inline std::span<const RequestRecord> records_of(const Run& run, const Tenant& tenant) {
  return std::span(run.records).subspan(tenant.first, tenant.count);
}

// First intended send to last end. O(records).
inline double span_s(std::span<const RequestRecord> records) {
  if (records.empty()) return 0;
  double begin_s = records.front().intended_s, end_s = begin_s;
  for (const RequestRecord& record : records) {
    begin_s = std::min(begin_s, record.intended_s);
    end_s = std::max(end_s, record.end_s);
  }
  return end_s - begin_s;
}

// Fills in duration and send lag from the records. O(records).
inline void measure_span(Run& run) {
  run.duration_s = span_s(run.records);
  for (const RequestRecord& record : run.records)
    run.max_send_lag_s = std::max(run.max_send_lag_s, record.sent_s - record.intended_s);
}

// The CPU time that this process has used, for Run::own_cpu_seconds.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace troupe::load
