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

  double total = 0;
  std::vector<double> per_weight;
  for (Share& share : fairness.shares) {
    share.share = tokens_served(records_of(run, run.tenants[share.tenant]), fairness.from_s, fairness.to_s);
    share.served_per_s = share.share / (fairness.to_s - fairness.from_s);
    per_weight.push_back(share.share / share.due);
    total += share.share;
  }
  if (total == 0) return std::nullopt;
  for (Share& share : fairness.shares) {
    share.share /= total;
    share.due /= weights;
    share.deviation = share.share / share.due - 1;
    if (std::abs(share.deviation) > std::abs(fairness.shares[fairness.worst].deviation))
      fairness.worst = static_cast<std::size_t>(&share - fairness.shares.data());
  }
  fairness.jain = jain_index(per_weight);
  return fairness;
}

}  // namespace troupe::load
