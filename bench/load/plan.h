// What a load run sends: a list of requests that depends on the specification and its seed alone. No clock, no
// socket: a driver decides by the plan, and by the answers where the loop is closed, what goes out when (pacer.h).
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

// When requests arrive. With a rate the loop is open: arrivals do not wait for answers. Without, each client sends its
// next request when the last has ended.
struct Pace {
  std::optional<double> rate{};  // requests per second
  std::uint32_t clients = 0;     // closed loop: how many, at least 1; open loop: most at once, 0: any
  double burstiness = 1;         // shape of the gamma-distributed intervals: 1: Poisson; 0: constant ones
  double ramp_from = 0;          // rate (open loop) or clients (closed loop) at the start, and then
  double ramp_up_s = 0;          // linearly up to the full number in this time
  double think_s = 0;            // closed loop: from an end to the same client's next request
  std::optional<std::uint64_t> num_requests{};  // at least one of these two must be there
  std::optional<double> duration_s{};           // nothing is sent after this
};

// Shares of the requests, 0 to 1, together at most 1, that are disturbed on purpose.
struct FaultRates {
  double cancel = 0;
  double disconnect = 0;
  double slow_reader = 0;
  double garbage = 0;
  double slow_reader_pause_s = 2;  // how long a slow reader stops
};

// What the synthetic requests look like. Prompts are uniformly drawn ids, so that nothing but the stated prefixes is
// ever shared.
struct Shape {
  Lengths prompt{Lengths::Kind::fixed, 128, 0};  // after the shared prefix, if there is one
  Lengths output{Lengths::Kind::fixed, 64, 0};
  double prefix_share = 0;          // share of the requests that begin with a shared prefix, 0 to 1
  std::uint32_t num_prefixes = 1;   // different ones, drawn uniformly
  std::uint32_t prefix_tokens = 0;  // length of each; 0: there are none
  client::Sampling sampling{};      // of every request but for seed and max_tokens, which are its own
};

// The model that the requests are for, as far as a plan must know it.
struct Vocabulary {
  std::uint32_t size = 0;                  // ids are below this; at least 2
  std::vector<TokenId> avoid{};            // ids that no prompt holds: begin and end of a sequence
  std::optional<TokenId> begin{};          // first token of every prompt, if the model wants one
  std::optional<std::uint32_t> context{};  // prompt and answer together; absent: not known
};

struct PlanSpec {
  std::uint64_t seed = 0;
  Pace pace{};
  FaultRates faults{};
  Shape shape{};
  Vocabulary vocabulary{};
};

// Where in its life a request is disturbed.
struct FaultPoint {
  // Received tokens after which it happens; 0: a moment after sending, whatever has come by then.
  std::uint32_t after_tokens = 0;
  double delay_s = 0;        // after_tokens == 0: this long after sending
  std::uint32_t choice = 0;  // uniform: which of the ways there are (which garbage, which way of reading slowly)
};

struct PlannedRequest {
  std::uint64_t index = 0;
  double arrival_s = 0;                   // open loop: when it should be sent; closed loop: not before
  std::optional<std::uint32_t> prefix{};  // which shared prefix the prompt begins with
  std::variant<std::string, std::vector<TokenId>> prompt{};
  client::Sampling sampling{};  // seed and max_tokens are always there
  Fault fault = Fault::none;
  FaultPoint fault_point{};
};

// A list of requests, made when they are asked for: a closed loop may need any number of them. A value; reading it from
// several threads is safe.
class Plan {
 public:
  // Error: invalid_argument, for rates, shares and lengths that cannot be (with their numbers), above all where the
  // shortest request is longer than the model's context. Longer ones are cut to fit: the prompt first, then the answer.
  static Result<Plan> make(PlanSpec spec);
  // The requests of a trace instead (trace.h), ascending by arrival; of `spec` only pace (less rate and
  // num_requests) and the faults of requests that have none count. With `open_loop` they are sent at their arrivals.
  static Result<Plan> from_trace(PlanSpec spec, std::vector<PlannedRequest> requests, bool open_loop);

  [[nodiscard]] const PlanSpec& spec() const { return spec_; }
  [[nodiscard]] bool open_loop() const { return open_loop_; }
  // How many there are; absent in a closed loop that ends by time alone.
  [[nodiscard]] std::optional<std::uint64_t> size() const { return size_; }
  // The request `index` < size(). O(length of the prompt), and a pure function of (spec, index).
  [[nodiscard]] PlannedRequest request(std::uint64_t index) const;
  // When the request should be sent (open loop). O(1).
  [[nodiscard]] double arrival_s(std::uint64_t index) const { return arrivals_.empty() ? 0 : arrivals_[index]; }
  // When client `client` < spec().pace.clients of a closed loop begins.
  [[nodiscard]] double client_start_s(std::uint32_t client) const;
  // The shared prefixes, begin token included; empty where there are none.
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
  std::vector<PlannedRequest> trace_;  // of a trace: the requests themselves
  std::vector<TokenId> allowed_;       // ids that prompts may hold
};

}  // namespace troupe::load
