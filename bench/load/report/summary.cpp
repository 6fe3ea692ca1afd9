#include "bench/load/report/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "config/assert.h"

namespace troupe::load {
namespace {

// A client that disconnected cannot have received the end.
bool gave_up(const RequestRecord& record) { return record.fault == Fault::disconnect; }

double per_second(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

// The most requests between sent and ended at one time; one that ends as another is sent makes room for it.
std::size_t peak_concurrency(std::span<const RequestRecord> records) {
  std::vector<std::pair<double, int>> changes;
  changes.reserve(2 * records.size());
  for (const RequestRecord& record : records) {
    if (record.num_ends == 0 || verdict(record) == Verdict::refused) continue;
    changes.emplace_back(record.sent_s, 1);
    changes.emplace_back(record.end_s, -1);
  }
  std::sort(changes.begin(), changes.end());
  int now = 0, peak = 0;
  for (const auto& [at, change] : changes) peak = std::max(peak, now += change);
  return static_cast<std::size_t>(peak);
}

// The most tokens that arrived within a second, wherever it begins.
double peak_output(std::span<const RequestRecord> records) {
  std::vector<Arrival> all;
  for (const RequestRecord& record : records) all.insert(all.end(), record.arrivals.begin(), record.arrivals.end());
  std::sort(all.begin(), all.end(), [](const Arrival& a, const Arrival& b) { return a.at_s < b.at_s; });
  std::uint64_t now = 0, best = 0;
  for (std::size_t first = 0, i = 0; i < all.size(); ++i) {
    now += all[i].num_tokens;
    while (all[first].at_s <= all[i].at_s - 1) now -= all[first++].num_tokens;
    best = std::max(best, now);
  }
  return static_cast<double>(best);
}

void count(const RequestRecord& record, Summary& summary) {
  switch (verdict(record)) {
    case Verdict::completed:
      ++summary.completed;
      summary.undisturbed += is_undisturbed(record);
      summary.input_tokens += record.prompt_tokens;
      summary.cached_tokens += record.cached_tokens;
      summary.output_tokens += record.completion_tokens;
      break;
    case Verdict::cut:
      ++summary.cut;
      break;
    case Verdict::refused:
      ++summary.refused;
      ++summary.refusals[record.outcome];
      ++summary.limits_met[record.outcome + (record.limit.empty() ? "" : " (" + record.limit + ")")];
      summary.without_advice += !record.retry_after_s;
      break;
    case Verdict::failed:
      ++summary.failed;
      ++summary.failures[record.num_ends == 0 ? "never ended" : record.outcome];
      break;
  }
  if (record.fault != Fault::none) ++summary.faults[std::string(name(record.fault))];
  summary.untouched += is_undisturbed(record);
  summary.retries += record.retries;
  summary.retries_admitted += record.retries > 0 && (record.kind == EndKind::done || record.kind == EndKind::failed);
  summary.preemptions += record.preemptions;
  summary.never_ended += record.num_ends == 0 && !gave_up(record);
  summary.ended_twice += record.num_ends > 1;
  if (record.verified) ++(*record.verified ? summary.verified : summary.mismatched);
}

void count_steps(const std::vector<ServerSample>& samples, Summary& summary) {
  double seconds = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    if (samples[i].steps < samples[i - 1].steps) continue;  // the server was restarted
    summary.steps += samples[i].steps - samples[i - 1].steps;
    seconds += samples[i].step_seconds - samples[i - 1].step_seconds;
  }
  if (summary.steps > 0) summary.mean_step_ms = 1e3 * seconds / static_cast<double>(summary.steps);
}

std::size_t num_good(std::span<const RequestRecord> records, const Goodput& limits) {
  return static_cast<std::size_t>(
      std::count_if(records.begin(), records.end(), [&](const RequestRecord& r) { return is_good(r, limits); }));
}

void fill_goodput(std::size_t good, Summary& summary) {
  summary.request_goodput = per_second(static_cast<double>(good), summary.duration_s);
  summary.good_share = summary.untouched > 0 ? static_cast<double>(good) / static_cast<double>(summary.untouched) : 0;
}

// Everything that the records tell, but for goodput.
Summary summarize_records(std::span<const RequestRecord> records, double duration_s) {
  Summary summary;
  summary.num_requests = records.size();
  summary.duration_s = duration_s;
  std::uint64_t arrivals = 0, arrived = 0;
  for (const RequestRecord& record : records) {
    count(record, summary);
    arrivals += record.arrivals.size();
    for (const Arrival& arrival : record.arrivals) arrived += arrival.num_tokens;
  }
  if (arrivals > 0) summary.tokens_per_arrival = static_cast<double>(arrived) / static_cast<double>(arrivals);

  summary.request_throughput = per_second(static_cast<double>(summary.completed), duration_s);
  summary.input_throughput = per_second(static_cast<double>(summary.input_tokens), duration_s);
  summary.output_throughput = per_second(static_cast<double>(summary.output_tokens), duration_s);
  summary.total_throughput = summary.input_throughput + summary.output_throughput;
  // A run of 0.4 s has no whole second, and one of 1.4 s may have most of its tokens at both ends.
  summary.peak_output_throughput = std::max(peak_output(records), summary.output_throughput);
  summary.peak_concurrency = peak_concurrency(records);

  const Latencies latencies = latencies_of(records);
  summary.ttft = distribution_of(latencies.ttft);
  summary.tpot = distribution_of(latencies.tpot);
  summary.itl = distribution_of(latencies.itl);
  summary.e2el = distribution_of(latencies.e2el);
  summary.queue = distribution_of(latencies.queue);
  return summary;
}

}  // namespace

double percentile(std::span<const double> sorted, double percent) {
  TROUPE_ASSERT(!sorted.empty() && percent >= 0 && percent <= 100);
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Distribution distribution_of(std::span<const double> sorted) {
  Distribution d;
  if (sorted.empty()) return d;
  const auto count = static_cast<double>(sorted.size());
  d.count = sorted.size();
  d.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  double squares = 0;
  for (const double value : sorted) squares += (value - d.mean) * (value - d.mean);
  d.std = std::sqrt(squares / count);
  d.min = sorted.front();
  d.median = percentile(sorted, 50);
  d.p90 = percentile(sorted, 90);
  d.p95 = percentile(sorted, 95);
  d.p99 = percentile(sorted, 99);
  d.max = sorted.back();
  return d;
}

std::optional<double> ttft_s(const RequestRecord& record) {
  if (record.arrivals.empty()) return std::nullopt;
  return record.arrivals.front().at_s - record.intended_s;
}

std::optional<double> tpot_s(const RequestRecord& record) {
  if (record.arrivals.empty() || record.completion_tokens < 2) return std::nullopt;
  return (e2el_s(record) - *ttft_s(record)) / (record.completion_tokens - 1);
}

double e2el_s(const RequestRecord& record) { return record.end_s - record.intended_s; }

Verdict verdict(const RequestRecord& record) {
  if (record.kind == EndKind::done)
    return record.outcome == "cancelled" || record.outcome == "deadline" ? Verdict::cut : Verdict::completed;
  if (record.kind == EndKind::refused) return Verdict::refused;
  return gave_up(record) ? Verdict::cut : Verdict::failed;
}

bool is_good(const RequestRecord& record, const Goodput& limits) {
  if (verdict(record) != Verdict::completed || !is_undisturbed(record)) return false;
  const auto within = [](std::optional<double> seconds, std::optional<double> limit_ms, double absent_s) {
    return !limit_ms || 1e3 * seconds.value_or(absent_s) <= *limit_ms;
  };
  return within(ttft_s(record), limits.ttft_ms, e2el_s(record)) && within(tpot_s(record), limits.tpot_ms, 0) &&
         within(e2el_s(record), limits.e2el_ms, 0);
}

Latencies latencies_of(std::span<const RequestRecord> records) {
  Latencies all;
  for (const RequestRecord& record : records) {
    if (verdict(record) != Verdict::completed || !is_undisturbed(record)) continue;
    if (const auto ttft = ttft_s(record)) all.ttft.push_back(1e3 * *ttft);
    if (const auto tpot = tpot_s(record)) all.tpot.push_back(1e3 * *tpot);
    for (std::size_t i = 1; i < record.arrivals.size(); ++i)
      all.itl.push_back(1e3 * (record.arrivals[i].at_s - record.arrivals[i - 1].at_s));
    all.e2el.push_back(1e3 * e2el_s(record));
    if (record.queue_s) all.queue.push_back(1e3 * *record.queue_s);
  }
  for (auto* values : {&all.ttft, &all.tpot, &all.itl, &all.e2el, &all.queue})
    std::sort(values->begin(), values->end());
  return all;
}

double Summary::cached_share() const {
  return input_tokens > 0 ? static_cast<double>(cached_tokens) / static_cast<double>(input_tokens) : 0;
}

Summary summarize(const Run& run, const Goodput& limits) {
  bool limited = limits.any();
  for (const Tenant& tenant : run.tenants) limited |= tenant.limits.any();
  std::size_t good = 0;
  if (run.tenants.empty()) good = num_good(run.records, limits);
  for (const Tenant& tenant : run.tenants) good += num_good(records_of(run, tenant), tenant.limits);
  Summary summary = summarize_records(run.records, run.duration_s);
  if (limited) fill_goodput(good, summary);
  count_steps(run.samples, summary);
  return summary;
}

Summary summarize_tenant(const Run& run, const Tenant& tenant) {
  const std::span<const RequestRecord> records = records_of(run, tenant);
  Summary summary = summarize_records(records, span_s(records));
  if (tenant.limits.any()) fill_goodput(num_good(records, tenant.limits), summary);
  return summary;
}

std::string_view name(Fault fault) {
  constexpr std::array<std::string_view, 5> kNames = {"none", "cancel", "disconnect", "slow reader", "garbage"};
  return kNames.at(static_cast<std::size_t>(fault));
}

}  // namespace troupe::load
