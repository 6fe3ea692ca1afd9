// Latency histograms: counts in fixed buckets, from which a metrics scraper computes quantiles.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/metric.h"

namespace troupe::actors {

// Upper bounds of the buckets in seconds, the same for every histogram; one more bucket is above the last. They range
// from the shortest step overhead to the longest answer, by factors of 2 to 2.5: a quantile is known to that factor.
inline constexpr std::array kLatencyBounds{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3,  2.5e-3, 5e-3,
                                           10e-3, 25e-3, 50e-3, 0.1,    0.25,   0.5,    1.0,   2.5,    5.0,
                                           10.0,  25.0,  50.0,  100.0,  250.0,  500.0,  1000.0};

// A plain value: adding to it allocates nothing. Not thread-safe.
struct Histogram {
  std::array<std::uint64_t, kLatencyBounds.size() + 1> counts{};  // a duration equal to a bound is in its bucket
  double sum_seconds = 0;

  void add(double seconds) {
    const auto bucket = std::lower_bound(kLatencyBounds.begin(), kLatencyBounds.end(), seconds);
    ++counts[static_cast<std::size_t>(bucket - kLatencyBounds.begin())];
    sum_seconds += seconds;
  }
  void add(const Histogram& other) {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    sum_seconds += other.sum_seconds;
  }
};

// What is measured. StreamTable counts the latencies of streams, Counters the last three.
enum class Latency : std::uint8_t {
  time_to_first_token,     // arrival to first token
  inter_token_latency,     // from one TokenRun of a stream to the next, divided by the tokens of the next
  e2e_request_latency,     // arrival to end; this and the next four: only streams that got a token
  request_queue_time,      // arrival to first step
  request_prefill_time,    // first step to first token
  request_decode_time,     // first token to last
  request_inference_time,  // first step to end
  step_duration,           // one pass over a batch
  step_overhead,           // last kernel of a step to the first of the next, if there was work left after the step
  cancel_latency,          // arrival of a cancel (or loss of the client) until its blocks are given back
};
inline constexpr std::array<std::string_view, 10> kLatencyNames{
    "time_to_first_token",  "inter_token_latency", "e2e_request_latency",    "request_queue_time",
    "request_prefill_time", "request_decode_time", "request_inference_time", "step_duration",
    "step_overhead",        "cancel_latency"};

struct Latencies {
  std::array<Histogram, kLatencyNames.size()> histograms{};

  void add(Latency what, double seconds) { histograms[static_cast<std::size_t>(what)].add(seconds); }

  // Those from first to last.
  void append_metrics(MetricList& metrics, Latency first, Latency last) const {
    for (std::size_t i = static_cast<std::size_t>(first); i <= static_cast<std::size_t>(last); ++i) {
      std::string words(kLatencyNames[i]);
      std::replace(words.begin(), words.end(), '_', ' ');
      metrics.add({.name = std::string(kLatencyNames[i]),
                   .help = "Histogram of " + words + " in seconds.",
                   .kind = MetricKind::histogram,
                   .value = histograms[i].sum_seconds,
                   .counts = {histograms[i].counts.begin(), histograms[i].counts.end()},
                   .key = std::string(kLatencyNames[i])});
    }
  }
};

}  // namespace troupe::actors
