// The requests of a load run: a list that depends on the specification and its seed only. No clock, no socket: a driver
// sends them at the times that pacer.h computes from the plan and, in a closed loop, from the ends of requests.
//
// All times are seconds since the start of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/load/lengths.h"
#include "bench/load/record.h"
#include "cache/ids.h"
#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::load {

// When requests are sent. With a rate the loop is open: requests do not wait for answers. Without one it is closed:
// each client sends its next request when the last has ended.
struct Pace {
  std::optional<double> rate{};  // requests per second
  std::uint32_t clients = 0;     // closed loop: number of clients, >= 1; open loop: most requests at once, 0: any
  double burstiness = 1;         // shape of the gamma-distributed intervals: 1: Poisson; 0: constant ones
  double ramp_from = 0;          // rate (open loop) or clients (closed loop) at the start
  double ramp_up_s = 0;          // time of the linear rise from ramp_from to the full rate or number
  double think_s = 0;            // closed loop: from an end to the same client's next request
  double start_s = 0;            // the first client or arrival; ramps count from here
  std::optional<std::uint64_t> num_requests{};  // at least one of these two must be set
  std::optional<double> duration_s{};           // nothing is sent after this, counted from 0; above start_s
};

// Shares of the requests, 0 to 1, together at most 1, that get an injected fault.
struct FaultRates {
  double cancel = 0;
  double disconnect = 0;
  double slow_reader = 0;
  double garbage = 0;
  double slow_reader_pause_s = 2;  // how long a slow reader stops
};

// The synthetic requests. Prompts are uniformly drawn ids, so that requests share nothing but the shared prefixes.
struct Shape {
  Lengths prompt{Lengths::Kind::fixed, 128, 0};  // after the shared prefix, if there is one
  Lengths output{Lengths::Kind::fixed, 64, 0};
  double prefix_share = 0;          // share of the requests that begin with a shared prefix, 0 to 1
  std::uint32_t num_prefixes = 1;   // number of shared prefixes; a request's is drawn uniformly
  std::uint32_t prefix_tokens = 0;  // length of each; 0: no shared prefixes
  client::Sampling sampling{};      // of every request, except for seed and max_tokens, which differ
};

// The properties of the model that a plan depends on.
struct Vocabulary {
  std::uint32_t size = 0;                  // ids are below this; at least 2
  std::vector<TokenId> avoid{};            // ids that no prompt contains: begin and end of a sequence
  std::optional<TokenId> begin{};          // first token of every prompt, if the model needs one
  std::optional<std::uint32_t> context{};  // prompt and answer together; absent: not known
};

struct PlanSpec {
  std::uint64_t seed = 0;
  Pace pace{};
  FaultRates faults{};
  Shape shape{};
  Vocabulary vocabulary{};
};

// When a request's fault is injected.
struct FaultPoint {
  // After this many received tokens; 0: delay_s after sending, however many tokens have arrived by then.
  std::uint32_t after_tokens = 0;
  double delay_s = 0;        // if after_tokens is 0
  std::uint32_t choice = 0;  // uniform: selects the variant of the fault (kind of garbage, kind of slow reader)
};

struct PlannedRequest {
  std::uint64_t index = 0;
  double arrival_s = 0;                   // open loop: when it should be sent; closed loop: the earliest time
  std::optional<std::uint32_t> prefix{};  // which shared prefix the prompt begins with
  std::variant<std::string, std::vector<TokenId>> prompt{};
  client::Sampling sampling{};  // seed and max_tokens are always set
  Fault fault = Fault::none;
  FaultPoint fault_point{};
};

// A list of requests, each generated on demand, since a closed loop may need any number of them. A value; reading it
// from several threads is safe.
class Plan {
 public:
  // Error: invalid_argument, for impossible rates, shares and lengths (the message has the numbers), and if the
  // shortest request is longer than the model's context. Requests that are too long are cut to fit: first the prompt,
  // then the answer.
  static Result<Plan> make(PlanSpec spec);
  // A plan with the requests of a trace (trace.h), ascending by arrival. Of `spec` only pace (without rate and
  // num_requests) is used, and faults, for requests that have none. With `open_loop` they are sent at their arrivals.
  static Result<Plan> from_trace(PlanSpec spec, std::vector<PlannedRequest> requests, bool open_loop);

  [[nodiscard]] const PlanSpec& spec() const { return spec_; }
  [[nodiscard]] bool open_loop() const { return open_loop_; }
  // The number of requests; absent for a closed loop that only ends by time.
  [[nodiscard]] std::optional<std::uint64_t> size() const { return size_; }
  // The request `index` < size(). O(length of the prompt), and a pure function of (spec, index).
  [[nodiscard]] PlannedRequest request(std::uint64_t index) const;
  // When the request should be sent (open loop). O(1).
  [[nodiscard]] double arrival_s(std::uint64_t index) const { return arrivals_.empty() ? 0 : arrivals_[index]; }
  // When client `client` < spec().pace.clients of a closed loop begins.
  [[nodiscard]] double client_start_s(std::uint32_t client) const;
  // The shared prefixes, begin token included; may be empty.
  [[nodiscard]] const std::vector<std::vector<TokenId>>& prefixes() const { return prefixes_; }

 private:
  explicit Plan(PlanSpec spec);
  void make_arrivals();
  void make_prefixes();
  [[nodiscard]] std::vector<TokenId> make_prompt(std::uint64_t index, std::optional<std::uint32_t> prefix,
                                                 std::uint32_t max_tokens) const;
  void append_tokens(std::vector<TokenId>& out, std::uint64_t count, Random random) const;
  void choose_fault(PlannedRequest& request) const;

  PlanSpec spec_;
  bool open_loop_ = false;
  std::optional<std::uint64_t> size_;
  std::vector<double> arrivals_;  // open loop: ascending
  std::vector<std::vector<TokenId>> prefixes_;
  std::vector<PlannedRequest> trace_;  // the requests of a trace; else empty
  std::vector<TokenId> allowed_;       // ids that prompts may contain
};

}  // namespace troupe::load
