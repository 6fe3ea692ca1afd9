// The summary of a load run: latencies, throughput, goodput, and whether every request ended exactly once. Plain logic
// over plain values (tests/load/summary_test.cpp).
//
// Throughput counts completed requests, as `vllm bench serve` does. Latencies and goodput count only the undisturbed
// ones among them, those without an injected fault: a slow reader causes its own latency.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/load/record.h"

namespace troupe::load {

// The `percent` (0 to 100) percentile of `sorted`, interpolated linearly between the two nearest values as
// numpy.percentile does by default, and so `vllm bench serve`. `sorted` is ascending and not empty. O(1).
[[nodiscard]] double percentile(std::span<const double> sorted, double percent);

// Statistics of values of one kind; all zero if there are none. `std` is of the population (numpy.std).
struct Distribution {
  std::size_t count = 0;
  double mean = 0, std = 0, min = 0, median = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

[[nodiscard]] Distribution distribution_of(std::span<const double> sorted);

// Each kind's values in milliseconds, ascending, for percentiles and curves.
struct Latencies {
  std::vector<double> ttft;   // intended send to the first token
  std::vector<double> tpot;   // (e2el - ttft) / (tokens - 1); of answers of two tokens and more
  std::vector<double> itl;    // every gap between arrivals; tokens of one read end one gap, not one each
  std::vector<double> e2el;   // intended send to the end
  std::vector<double> queue;  // arrival to first step, as the server counts; empty if not reported
};

// Latencies of one request in seconds; absent if it has no such latency.
[[nodiscard]] std::optional<double> ttft_s(const RequestRecord& record);
[[nodiscard]] std::optional<double> tpot_s(const RequestRecord& record);
[[nodiscard]] double e2el_s(const RequestRecord& record);

// How a request counts.
enum class Verdict : std::uint8_t {
  completed,  // ended by its own length or stop
  cut,        // cancelled, ended by its deadline, or disconnected by an injected fault
  refused,    // nothing was computed
  failed,     // everything else: failed, was lost, or never ended
};

[[nodiscard]] Verdict verdict(const RequestRecord& record);
[[nodiscard]] inline bool is_undisturbed(const RequestRecord& record) { return record.fault == Fault::none; }
// Completed, undisturbed and within every limit. A single token has a TPOT of 0, as in `vllm bench serve`.
[[nodiscard]] bool is_good(const RequestRecord& record, const Goodput& limits);

[[nodiscard]] Latencies latencies_of(std::span<const RequestRecord> records);

struct Summary {
  std::size_t num_requests = 0;
  std::size_t completed = 0, cut = 0, refused = 0, failed = 0;  // by verdict; their sum is num_requests
  std::size_t undisturbed = 0;                                  // of the completed: those that latencies are taken from
  std::size_t untouched = 0;                                    // of all: those without an injected fault
  std::map<std::string, std::size_t> refusals{};                // by outcome
  std::map<std::string, std::size_t> limits_met{};              // refusals by outcome and limit: "quota (max_queued)"
  std::map<std::string, std::size_t> failures{};                // by outcome
  std::map<std::string, std::size_t> faults{};                  // by name: what was injected
  std::uint64_t retries = 0;                                    // sent again after a refusal
  std::uint64_t retries_admitted = 0;                           // of those: not refused again
  std::size_t without_advice = 0;  // of the refused: the server did not say when to try again
  std::uint64_t preemptions = 0;

  // Without requests whose client disconnected: those need not have received an end.
  std::size_t never_ended = 0;
  std::size_t ended_twice = 0;  // or more often

  std::size_t verified = 0;    // compared, and equal to the same request run alone
  std::size_t mismatched = 0;  // compared, and not

  double duration_s = 0;
  std::uint64_t input_tokens = 0;   // of the completed, as are the next two
  std::uint64_t cached_tokens = 0;  // of the input, from the prefix cache
  std::uint64_t output_tokens = 0;
  double tokens_per_arrival = 0;  // mean number of tokens that arrived together

  // Per second of the run.
  double request_throughput = 0;
  double input_throughput = 0;
  double output_throughput = 0;
  double total_throughput = 0;
  std::optional<double> request_goodput{};  // absent: no limits were stated
  double good_share = 0;                    // of the undisturbed requests, refused and failed ones included

  double peak_output_throughput = 0;  // tokens in the best second; at least output_throughput
  std::size_t peak_concurrency = 0;   // requests sent and not ended

  Distribution ttft{}, tpot{}, itl{}, e2el{}, queue{};  // milliseconds

  std::uint64_t steps = 0;  // from the server's samples, as is the next; 0: no samples
  double mean_step_ms = 0;

  bool ended_exactly_once() const { return never_ended == 0 && ended_twice == 0; }
  double cached_share() const;
};

// O(n log n) in arrivals and records. A request of a tenant is good within the tenant's limits, and `limits` are those
// of the others.
[[nodiscard]] Summary summarize(const Run& run, const Goodput& limits);
// The requests of one tenant within its limits, per second of its own span. Steps are the server's, and not counted.
[[nodiscard]] Summary summarize_tenant(const Run& run, const Tenant& tenant);

// "cancel", "slow reader", ...; "none"
[[nodiscard]] std::string_view name(Fault fault);

}  // namespace troupe::load
