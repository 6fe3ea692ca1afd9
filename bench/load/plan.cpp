#include "bench/load/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "config/assert.h"
#include "config/options/values.h"

namespace troupe::load {
namespace {

constexpr std::uint64_t kMaxArrivals = 10'000'000;  // 80 MB of times
constexpr double kLongestDelay_s = 0.2;             // of a fault with after_tokens 0

std::string text(double value) { return config::format_number(value); }

Error invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Status check_share(double share, const char* what) {
  if (share >= 0 && share <= 1) return Ok{};
  return invalid(fmt::format("{} is {}; a share is 0 to 1", what, text(share)));
}

Status check_faults(const FaultRates& faults) {
  for (const auto& [share, what] :
       {std::pair{faults.cancel, "the share of cancels"}, std::pair{faults.disconnect, "the share of disconnects"},
        std::pair{faults.slow_reader, "the share of slow readers"}, std::pair{faults.garbage, "the share of garbage"}})
    if (Status checked = check_share(share, what); !checked) return checked;
  const double sum = faults.cancel + faults.disconnect + faults.slow_reader + faults.garbage;
  if (sum > 1)
    return invalid(
        fmt::format("the shares of faults add up to {}; a request has at most one, so at most 1", text(sum)));
  return Ok{};
}

Status check_pace(const Pace& pace) {
  if (pace.rate && *pace.rate <= 0) return invalid(fmt::format("the rate is {}; it must be above 0", text(*pace.rate)));
  if (!pace.rate && pace.clients == 0) return invalid("a closed loop needs at least one client");
  if (!pace.num_requests && !pace.duration_s)
    return invalid("the run would never end: give a number of requests, a duration, or both");
  if (pace.start_s < 0 || (pace.duration_s && pace.start_s >= *pace.duration_s))
    return invalid(fmt::format("it begins at {} s, outside of the run's {} s", text(pace.start_s),
                               text(pace.duration_s.value_or(0))));
  const double full = pace.rate.value_or(pace.clients);
  if (pace.ramp_up_s > 0 && (pace.ramp_from < 0 || pace.ramp_from > full))
    return invalid(fmt::format("the ramp begins at {}, outside of 0 to {}", text(pace.ramp_from), text(full)));
  return Ok{};
}

// Of an open loop, at its full rate: without what the ramp adds.
double expected_arrivals(const Pace& pace) {
  const double most = pace.num_requests ? static_cast<double>(*pace.num_requests) : HUGE_VAL;
  const double seconds = pace.duration_s ? *pace.duration_s - pace.start_s - pace.ramp_up_s : HUGE_VAL;
  return std::min(most, *pace.rate * seconds);
}

Status check_shape(const Shape& shape, const Vocabulary& vocabulary) {
  if (Status checked = check_share(shape.prefix_share, "the share of shared prefixes"); !checked) return checked;
  if (vocabulary.size < 2 || vocabulary.size <= vocabulary.avoid.size())
    return invalid(fmt::format("a vocabulary of {} ids leaves none to make prompts of", vocabulary.size));
  const std::uint64_t prefix = shape.prefix_share > 0 ? shape.prefix_tokens : 0;
  const std::uint64_t least = prefix + shape.prompt.least() + shape.output.least();
  if (vocabulary.context && least > *vocabulary.context)
    return invalid(fmt::format(
        "the shortest request has {} tokens of prefix, {} of its own and {} of answer, together more than the model's "
        "context of {}; make one of them shorter",
        prefix, shape.prompt.least(), shape.output.least(), *vocabulary.context));
  return Ok{};
}

// The time at which the integral of a rate reaches `count`; the rate rises linearly from `from` to `full` within
// `ramp_s` and then stays there.
double inverse_ramp(double count, double from, double full, double ramp_s) {
  const double in_ramp = (from + full) / 2 * ramp_s;
  if (count >= in_ramp) return ramp_s + (count - in_ramp) / full;
  if (from == full) return count / full;
  const double slope = (full - from) / ramp_s;
  return (std::sqrt(from * from + 2 * slope * count) - from) / slope;
}

}  // namespace

Plan::Plan(PlanSpec spec) : spec_(std::move(spec)) {}

Result<Plan> Plan::make(PlanSpec spec) {
  if (Status checked = check_pace(spec.pace); !checked) return checked.error();
  if (Status checked = check_faults(spec.faults); !checked) return checked.error();
  if (Status checked = check_shape(spec.shape, spec.vocabulary); !checked) return checked.error();
  Plan plan(std::move(spec));
  plan.open_loop_ = plan.spec_.pace.rate.has_value();
  plan.size_ = plan.spec_.pace.num_requests;
  const std::vector<TokenId>& avoid = plan.spec_.vocabulary.avoid;
  for (TokenId id = 0; id < static_cast<TokenId>(plan.spec_.vocabulary.size); ++id)
    if (std::find(avoid.begin(), avoid.end(), id) == avoid.end()) plan.allowed_.push_back(id);
  if (plan.allowed_.empty()) return invalid("the vocabulary leaves no ids to make prompts of");
  plan.make_prefixes();
  if (!plan.open_loop_) return plan;
  const Error too_many = invalid(fmt::format(
      "the run would have more than {} arrivals; give a lower rate, a shorter duration or a number of requests",
      kMaxArrivals));
  if (expected_arrivals(plan.spec_.pace) > 2 * kMaxArrivals) return too_many;  // no need to draw them
  plan.make_arrivals();
  if (plan.arrivals_.size() >= kMaxArrivals) return too_many;
  return plan;
}

Result<Plan> Plan::from_trace(PlanSpec spec, std::vector<PlannedRequest> requests, bool open_loop) {
  if (requests.empty()) return invalid("the trace has no requests");
  spec.pace.num_requests = requests.size();
  spec.pace.rate.reset();
  if (!open_loop && spec.pace.clients == 0) return invalid("a closed loop needs at least one client");
  if (Status checked = check_faults(spec.faults); !checked) return checked.error();
  Plan plan(std::move(spec));
  plan.open_loop_ = open_loop;
  plan.trace_ = std::move(requests);
  for (PlannedRequest& request : plan.trace_) {
    request.index = static_cast<std::uint64_t>(&request - plan.trace_.data());
    if (request.fault == Fault::none) plan.choose_fault(request);
    if (plan.spec_.pace.duration_s && open_loop && request.arrival_s > *plan.spec_.pace.duration_s) break;
    if (open_loop) plan.arrivals_.push_back(request.arrival_s);
  }
  plan.size_ = open_loop ? plan.arrivals_.size() : plan.trace_.size();
  if (*plan.size_ == 0) return invalid("all requests of the trace come after the run's duration");
  TROUPE_ASSERT(std::is_sorted(plan.arrivals_.begin(), plan.arrivals_.end()));
  return plan;
}

// Draws arrivals of rate 1 and maps their times through the ramp, so that burstiness means the same at every rate.
void Plan::make_arrivals() {
  const Pace& pace = spec_.pace;
  const double from = pace.ramp_up_s > 0 ? pace.ramp_from : *pace.rate;
  const std::uint64_t most = std::min(pace.num_requests.value_or(kMaxArrivals), kMaxArrivals);
  double count = 0;
  while (arrivals_.size() < most) {
    const double at_s = pace.start_s + inverse_ramp(count, from, *pace.rate, pace.ramp_up_s);
    if (pace.duration_s && at_s > *pace.duration_s) break;
    arrivals_.push_back(at_s);
    Random random(spec_.seed, Purpose::arrival, arrivals_.size());
    count += pace.burstiness > 0 ? random.gamma(pace.burstiness) / pace.burstiness : 1;
  }
  size_ = arrivals_.size();
}

void Plan::make_prefixes() {
  const Shape& shape = spec_.shape;
  if (shape.prefix_tokens == 0 || shape.prefix_share <= 0) return;
  for (std::uint32_t i = 0; i < shape.num_prefixes; ++i) {
    std::vector<TokenId>& prefix = prefixes_.emplace_back();
    if (spec_.vocabulary.begin) prefix.push_back(*spec_.vocabulary.begin);
    append_tokens(prefix, shape.prefix_tokens - prefix.size(), {spec_.seed, Purpose::prefix_tokens, i});
  }
}

void Plan::append_tokens(std::vector<TokenId>& out, std::uint64_t count, Random random) const {
  out.reserve(out.size() + count);
  for (std::uint64_t i = 0; i < count; ++i) out.push_back(allowed_[random.below(allowed_.size())]);
}

std::vector<TokenId> Plan::make_prompt(std::uint64_t index, std::optional<std::uint32_t> prefix,
                                       std::uint32_t max_tokens) const {
  Random length(spec_.seed, Purpose::prompt_length, index);
  std::uint64_t own = spec_.shape.prompt.draw(length);
  std::vector<TokenId> prompt;
  if (prefix) prompt = prefixes_[*prefix];
  if (spec_.vocabulary.context) own = std::min(own, *spec_.vocabulary.context - prompt.size() - max_tokens);
  if (!prefix && spec_.vocabulary.begin) {
    prompt.push_back(*spec_.vocabulary.begin);
    --own;
  }
  append_tokens(prompt, own, {spec_.seed, Purpose::prompt_tokens, index});
  return prompt;
}

void Plan::choose_fault(PlannedRequest& request) const {
  const FaultRates& rates = spec_.faults;
  Random random(spec_.seed, Purpose::fault, request.index);
  double draw = random.uniform();
  for (const auto& [share, fault] :
       {std::pair{rates.cancel, Fault::cancel}, std::pair{rates.disconnect, Fault::disconnect},
        std::pair{rates.slow_reader, Fault::slow_reader}, std::pair{rates.garbage, Fault::garbage}}) {
    if (draw < share) {
      request.fault = fault;
      break;
    }
    draw -= share;
  }
  // Half of the faults come soon after sending, most of these almost at once: there a request passes through the most
  // states and actors.
  if (random.uniform() < 0.5)
    request.fault_point.delay_s = kLongestDelay_s * std::pow(random.uniform(), 4);
  else
    request.fault_point.after_tokens = 1 + static_cast<std::uint32_t>(random.below(*request.sampling.max_tokens));
  request.fault_point.choice = static_cast<std::uint32_t>(random.below(1ull << 32));
}

PlannedRequest Plan::request(std::uint64_t index) const {
  TROUPE_ASSERT(!size_ || index < *size_);
  if (!trace_.empty()) return trace_[index];
  const Shape& shape = spec_.shape;
  PlannedRequest request;
  request.index = index;
  request.arrival_s = arrival_s(index);
  Random prefix(spec_.seed, Purpose::prefix, index);
  if (!prefixes_.empty() && prefix.uniform() < shape.prefix_share)
    request.prefix = static_cast<std::uint32_t>(prefix.below(prefixes_.size()));

  Random length(spec_.seed, Purpose::output_length, index);
  std::uint32_t max_tokens = shape.output.draw(length);
  if (spec_.vocabulary.context) {
    const std::uint64_t before = (request.prefix ? prefixes_[*request.prefix].size() : 0) + shape.prompt.least();
    max_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(max_tokens, *spec_.vocabulary.context - before));
  }
  request.prompt = make_prompt(index, request.prefix, max_tokens);
  request.sampling = shape.sampling;
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = spec_.seed + index;
  choose_fault(request);
  return request;
}

double Plan::client_start_s(std::uint32_t client) const {
  const Pace& pace = spec_.pace;
  if (pace.ramp_up_s <= 0 || client < pace.ramp_from) return pace.start_s;
  return pace.start_s + pace.ramp_up_s * (client - pace.ramp_from) / (pace.clients - pace.ramp_from);
}

}  // namespace troupe::load
