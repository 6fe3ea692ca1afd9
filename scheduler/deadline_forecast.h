// When a request will have its first and its last token, predicted from what runs, what waits and what steps cost.
//
// The batch is played forward from now on, with every request that is known and no other: places are filled as
// FairQueue and StepPlanner would, answers have the length that is expected of them, and all steps between two events
// (a prompt is computed, an answer ends) are one jump whose length CostModel says. Among several tenants each advances
// as often as its weight allows: the one whose rows cost most per step is in each, the others in as many more as they
// have time for. What it leaves out: prefixes that waiting requests will share, blocks that run out, and whatever
// arrives later.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/cost_model.h"
#include "scheduler/shares/admission.h"

namespace troupe::scheduler {

// A request that runs or waits for a place. One that is out of credit is neither.
struct ForecastRequest {
  Demand demand;
  double weight = 1;           // of its tenant
  std::uint32_t known = 0;     // tokens of prompt and answer, >= 1
  std::uint32_t computed = 0;  // of these, < known; of a waiting request: those that it will find in the cache
  std::uint32_t answer = 1;    // tokens that are expected to follow, >= 1
  bool is_running = false;
  double from_seconds = 0;  // from now: when it arrives; 0 of one that runs
  // Seconds from now in which it has to be predicted to have its last token, or only its first, for its promise to be
  // safe: those that are left, divided by PromiseMargin::factor(). None: nothing was promised, or the promise is kept.
  std::optional<double> promised{};
  bool promised_last = false;
};

struct ForecastServer {
  const CostModel* costs = nullptr;
  std::uint32_t max_step_tokens = 512, max_sequences = 64;  // as in PlannerOptions
  double max_stall_seconds = std::numeric_limits<double>::infinity();
  double slowdown = 1;  // what a second of steps takes: time between steps and work of others come on top
};

// Seconds from now.
struct Forecast {
  double first_seconds = 0, last_seconds = 0;  // tokens
  std::vector<std::size_t> broken{};  // other requests that miss their promise, and would keep it without this one
};

// Of `next`, which is not among `requests`. costs->has_learned() (asserted). O(requests log requests, and for each
// prompt that is computed and each answer that ends until then: tenants + log rows); with promises at stake at most
// twice that.
[[nodiscard]] Forecast forecast(const ForecastServer& server, std::span<const ForecastRequest> requests,
                                const ForecastRequest& next);

// Of `requests` alone: those that miss their promise. Otherwise as forecast().
[[nodiscard]] std::vector<std::size_t> missed(const ForecastServer& server, std::span<const ForecastRequest> requests);

// What the request takes from its first step to its last token when nothing else runs: no promise can be shorter.
[[nodiscard]] Forecast alone(const ForecastServer& server, const ForecastRequest& request);

// How long answers without max_tokens are: decayed means, of each tenant and of all. Not thread-safe.
class AnswerLengths {
 public:
  static constexpr std::size_t kMaxTenants = 1024;  // one more, and those of all tenants are learned anew

  // An answer has ended by itself after so many tokens.
  void learn(TenantId tenant, std::uint64_t tokens);
  // The tokens that are expected to follow `generated` ones, >= 1.
  [[nodiscard]] std::uint32_t expected(TenantId tenant, std::uint64_t generated) const;

 private:
  std::unordered_map<TenantId, double> means_;
  double mean_ = 0;  // of all; 0: none has ended yet
};

}  // namespace troupe::scheduler
