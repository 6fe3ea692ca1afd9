#include "actors/status/counters.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

namespace troupe::actors {
namespace {

TimePoint at(int seconds) { return TimePoint{} + std::chrono::seconds(seconds); }

MetricList filled(const Counters& counters, TimePoint now) {
  MetricList metrics;
  counters.append_metrics(metrics, now);
  return metrics;
}

TEST_CASE("counters: without_progress grows while there is work and a model, and no step ends") {
  Counters counters(at(0));
  const auto still = [&](std::uint64_t queued, int since, int now) {
    return counters.without_progress(queued > 0 ? std::optional(at(since)) : std::nullopt, at(now));
  };
  CHECK(still(1, 10, 50) == std::chrono::seconds(0));  // loading
  counters.model_loaded(at(60));
  CHECK(still(0, 10, 100) == std::chrono::seconds(0));
  CHECK(still(1, 10, 61) == std::chrono::seconds(1));    // not since it came
  CHECK(still(1, 100, 101) == std::chrono::seconds(1));  // not since the model is there
  counters.step_began(at(102));
  engine::StepResult step;
  step.compute_seconds = 0.5;
  counters.step_ended(step, false, at(103));
  CHECK(still(1, 100, 108) == std::chrono::seconds(5));
  CHECK(still(0, 100, 108) == std::chrono::seconds(0));
  CHECK(still(1, 200, 108) == std::chrono::seconds(0));  // work that came after this moment
  CHECK(filled(counters, at(108)).count("steps") == 1);
  CHECK(filled(counters, at(108)).value("step_seconds") == Approx(0.5));
}

engine::StepResult step_of(int began, int ended) {
  engine::StepResult step;
  step.kernels_began = at(began);
  step.kernels_ended = at(ended);
  step.compute_seconds = ended - began;
  return step;
}

std::uint64_t count(const MetricList& metrics, const char* latency) {
  const std::vector<std::uint64_t>& counts = metrics.find(latency)->counts;
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

TEST_CASE("counters: the overhead of a step counts only if the one before left work") {
  Counters counters(at(0));
  counters.step_ended(step_of(1, 3), false, at(3));
  counters.step_ended(step_of(4, 6), true, at(6));         // 1 s after the kernels before
  counters.step_ended(step_of(106, 107), false, at(107));  // idle before
  const MetricList metrics = filled(counters, at(107));
  CHECK(count(metrics, "step_duration") == 3);
  CHECK(count(metrics, "step_overhead") == 1);
  CHECK(metrics.value("step_overhead") == Approx(1));
}

TEST_CASE("a histogram counts a duration in the first bucket whose bound it does not exceed") {
  Histogram histogram;
  histogram.add(0);
  histogram.add(10e-6);
  histogram.add(11e-6);
  histogram.add(1000);
  histogram.add(1001);
  CHECK(histogram.counts.front() == 2);
  CHECK(histogram.counts[1] == 1);
  CHECK(histogram.counts[kLatencyBounds.size() - 1] == 1);
  CHECK(histogram.counts.back() == 1);
  CHECK(histogram.sum_seconds == Approx(2001.000021));
  CHECK(std::is_sorted(kLatencyBounds.begin(), kLatencyBounds.end()));
}

TEST_CASE("counters: a model without windows and states has no metrics of them") {
  Counters counters(at(0));
  cache::CacheCounters cache;
  cache.groups[0].total = 8;
  cache.groups[1].cached = cache.snapshots.cached = 2;
  counters.cache(cache);
  for (const Metric& metric : filled(counters, at(1))) {
    INFO(metric.name);
    CHECK(metric.name.find("window") == std::string::npos);
    CHECK(metric.name.find("snapshot") == std::string::npos);
  }
}

TEST_CASE("metrics of the same name and labels are one: their values and buckets add up") {
  MetricList metrics;
  metrics.counter("steps", "Steps.", 2);
  metrics.counter("steps", "Steps.", 3);
  metrics.gauge("blocks", "Blocks.", 5, {.labels = {{"state", "free"}}, .key = "blocks_free"});
  metrics.gauge("blocks", "Blocks.", 7, {.labels = {{"state", "cached"}}});
  Latencies one, other;
  one.add(Latency::step_duration, 1);
  other.add(Latency::step_duration, 1);
  other.add(Latency::step_overhead, 2);
  one.append_metrics(metrics, Latency::time_to_first_token, Latency::cancel_latency);
  other.append_metrics(metrics, Latency::time_to_first_token, Latency::cancel_latency);
  CHECK(metrics.size() == 3 + kLatencyNames.size());
  CHECK(metrics.count("steps") == 5);
  CHECK(metrics.count("blocks_free") == 5);
  CHECK(metrics.find("blocks") == nullptr);  // with labels and without a key
  CHECK(count(metrics, "step_duration") == 2);
  CHECK(metrics.value("step_duration") == Approx(2));
  CHECK(metrics.value("step_overhead") == Approx(2));
}

TEST_CASE("a latency's sketch keeps one to two minutes, from a microsecond to three hours") {
  RecentLatency recent;
  const auto median = [&](int seconds) { return recent.at(at(seconds)).quantile(0.5); };
  CHECK_FALSE(median(0));
  recent.add(0.1, at(10));
  recent.add(0.3, at(69));
  CHECK(*median(69) == Approx(0.1).epsilon(0.025));  // the lower of two
  recent.add(0.5, at(71));
  CHECK(*median(72) == Approx(0.3).epsilon(0.025));
  recent.add(0.7, at(132));
  CHECK(*median(132) == Approx(0.5).epsilon(0.025));  // what is of the first minute is gone
  CHECK(*median(193) == Approx(0.7).epsilon(0.025));
  CHECK_FALSE(median(253));
  recent.add(0.9, at(400));
  CHECK(recent.at(at(400)).total() == 1);
  LatencySketch sketch;
  for (const double seconds : {0.0, -1.0, 1e9}) sketch.add(seconds);
  CHECK(*sketch.quantile(0.0) == Approx(1e-6).epsilon(0.03));
  CHECK(*sketch.quantile(1.0) > 1e4);
}

TEST_CASE("counters: what a keeper counted is kept when another one begins from zero") {
  Counters counters(at(0));
  counters.cache({.groups = {{{.total = 8, .free = 6, .evictions = 2},
                              {.total = 4, .free = 1, .cached = 2, .available = 3, .evictions = 7}}},
                  .snapshots = {.total = 3, .cached = 2, .evictions = 1},
                  .published = 5,
                  .snapshot_hits = 4});
  CHECK(filled(counters, at(1)).count("window_blocks_referenced") == 1);
  CHECK(filled(counters, at(1)).count("window_blocks_cached") == 2);
  CHECK(filled(counters, at(1)).count("snapshots_cached") == 2);
  counters.restarted();
  counters.keeper_restarted();
  counters.cache({.groups = {{{.total = 8, .free = 8, .evictions = 1}, {.total = 4, .evictions = 1}}},
                  .snapshots = {.total = 3, .evictions = 1},
                  .published = 1,
                  .snapshot_hits = 1});
  const MetricList snapshot = filled(counters, at(1));
  CHECK(snapshot.count("prefix_blocks_computed") == 6);
  CHECK(snapshot.count("evictions") == 3);
  CHECK(snapshot.count("window_block_evictions") == 8);
  CHECK(snapshot.count("snapshot_evictions") == 2);
  CHECK(snapshot.count("snapshot_hits") == 5);
  CHECK(snapshot.count("blocks_free") == 8);
  CHECK(snapshot.count("worker_restarts") == 1);
}

}  // namespace
}  // namespace troupe::actors
