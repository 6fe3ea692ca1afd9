// Quantiles of the latencies of the last minute or two. The histograms beside them (latency.h) are for scrapers, which
// see more than one server and any time: their buckets are too wide to say a quantile.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "actors/requests/request.h"
#include "config/metric.h"

namespace troupe::actors {

// Counts in buckets whose bounds grow by a twentieth (as a DDSketch): a quantile is known to 2.5 %, between a
// microsecond and three hours; what is outside counts as the nearest of both. 2 KiB. A plain value.
class LatencySketch {
 public:
  void add(double seconds) {
    const double place = std::log(std::max(seconds, kLeast) / kLeast) / std::log(kGrowth);
    ++counts_[std::min(static_cast<std::size_t>(place), kBuckets - 1)];
    ++total_;
  }
  void add(const LatencySketch& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
  }
  [[nodiscard]] std::uint64_t total() const { return total_; }
  // share: 0 to 1. nullopt if nothing was added.
  [[nodiscard]] std::optional<double> quantile(double share) const {
    // The nearest rank: the smallest value that at least this share is not above.
    const auto rank =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total_))));
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      below += counts_[i];
      if (below >= rank) return kLeast * std::pow(kGrowth, static_cast<double>(i) + 0.5);
    }
    return std::nullopt;
  }

 private:
  static constexpr double kLeast = 1e-6, kGrowth = 1.05;
  static constexpr std::size_t kBuckets = 474;  // up to 1.1e4 s
  std::array<std::uint32_t, kBuckets> counts_{};
  std::uint64_t total_ = 0;
};

// What was added in the last one to two minutes. Not thread-safe.
class RecentLatency {
 public:
  void add(double seconds, TimePoint now) {
    turn(now);
    now_.add(seconds);
  }
  [[nodiscard]] LatencySketch at(TimePoint now) const {
    LatencySketch sum;
    const auto age = now - since_;
    if (age < 2 * kPeriod) sum = now_;
    if (age < kPeriod) sum.add(before_);
    return sum;
  }

 private:
  void turn(TimePoint now) {
    const auto age = now - since_;
    if (now_.total() > 0 && age < kPeriod) return;
    before_ = age < 2 * kPeriod ? now_ : LatencySketch{};
    now_ = {};
    since_ = now;
  }

  static constexpr std::chrono::minutes kPeriod{1};
  TimePoint since_{};
  LatencySketch now_, before_;
};

// Appends the median and the 99th percentile, if anything was added: of the key NAME_p50 and NAME_p99.
inline void append_recent(MetricList& metrics, std::string_view name, const RecentLatency& recent, TimePoint now) {
  const LatencySketch sketch = recent.at(now);
  for (const auto& [share, quantile, ending] : {std::tuple{0.5, "0.5", "_p50"}, {0.99, "0.99", "_p99"}}) {
    const auto seconds = sketch.quantile(share);
    if (!seconds) return;
    const std::string key = std::string(name) + ending;
    metrics.gauge("recent_latency_seconds", "Latencies of the last one to two minutes, within 2.5 %.", *seconds,
                  {.labels = {{"latency", std::string(name)}, {"quantile", quantile}}, .key = key});
  }
}

}  // namespace troupe::actors
