#include "bench/load/report/fairness.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::load {
namespace {

// Tokens computed from `from_s` on and before `to_s`. A prompt counts when its computation is over: at the first token,
// or at the end of a request that has none.
double tokens_served(std::span<const RequestRecord> records, double from_s, double to_s) {
  double tokens = 0;
  const auto within = [&](double at_s) { return from_s <= at_s && at_s < to_s; };
  for (const RequestRecord& record : records) {
    const double prompt_s = record.arrivals.empty() ? record.end_s : record.arrivals.front().at_s;
    if (within(prompt_s)) tokens += record.prompt_tokens - std::min(record.cached_tokens, record.prompt_tokens);
    for (const Arrival& arrival : record.arrivals)
      if (within(arrival.at_s)) tokens += arrival.num_tokens;
  }
  return tokens;
}

// Seconds of computing from `from_s` on and before `to_s`. A receipt has their sum, here as if it was had evenly from
// the first step to the end.
double seconds_served(std::span<const RequestRecord> records, double from_s, double to_s) {
  double seconds = 0;
  for (const RequestRecord& record : records) {
    if (!record.compute_s) continue;
    const double began = std::min(record.sent_s + record.queue_s.value_or(0), record.end_s);
    const double within = std::max(0.0, std::min(record.end_s, to_s) - std::max(began, from_s));
    const bool is_within = from_s <= record.end_s && record.end_s < to_s;
    seconds += *record.compute_s * (record.end_s > began ? within / (record.end_s - began) : is_within ? 1 : 0);
  }
  return seconds;
}

// Sets what each tenant was served of one thing, of which Served::share has the sum yet; none: nothing at all.
std::optional<Evenness> divide(Fairness& fairness, Served Share::*part) {
  double total = 0;
  std::vector<double> per_weight;
  for (const Share& share : fairness.shares) {
    per_weight.push_back((share.*part).share / share.due);
    total += (share.*part).share;
  }
  if (total == 0) return std::nullopt;
  Evenness result{.worst = 0, .jain = jain_index(per_weight)};
  for (std::size_t i = 0; i < fairness.shares.size(); ++i) {
    const double due = fairness.shares[i].due;
    Served& served = fairness.shares[i].*part;
    served.per_s = served.share / (fairness.to_s - fairness.from_s);
    served.share /= total;
    served.deviation = served.share / due - 1;
    if (std::abs(served.deviation) > std::abs((fairness.shares[result.worst].*part).deviation)) result.worst = i;
  }
  return result;
}

}  // namespace

double jain_index(std::span<const double> values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 1;
}

std::optional<Fairness> fairness_of(const Run& run) {
  Fairness fairness{.from_s = 0, .to_s = std::numeric_limits<double>::infinity()};
  double weights = 0;
  for (std::size_t i = 0; i < run.tenants.size(); ++i) {
    if (!run.tenants[i].shares) continue;
    double first_s = std::numeric_limits<double>::infinity(), last_s = 0;
    for (const RequestRecord& record : records_of(run, run.tenants[i])) {
      first_s = std::min(first_s, record.sent_s);
      last_s = std::max(last_s, record.end_s);
    }
    fairness.from_s = std::max(fairness.from_s, first_s);
    fairness.to_s = std::min(fairness.to_s, last_s);
    fairness.shares.push_back({.tenant = i, .due = run.tenants[i].weight});
    weights += run.tenants[i].weight;
  }
  if (fairness.shares.size() < 2 || !(fairness.from_s < fairness.to_s)) return std::nullopt;

  for (Share& share : fairness.shares) {
    const auto records = records_of(run, run.tenants[share.tenant]);
    share.due /= weights;
    share.tokens.share = tokens_served(records, fairness.from_s, fairness.to_s);
    share.time.share = seconds_served(records, fairness.from_s, fairness.to_s);
  }
  const auto of_tokens = divide(fairness, &Share::tokens);
  if (!of_tokens) return std::nullopt;
  fairness.of_tokens = *of_tokens;
  fairness.of_time = divide(fairness, &Share::time);
  return fairness;
}

}  // namespace troupe::load
