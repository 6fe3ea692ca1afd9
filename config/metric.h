// Counters as data. To add a counter, append it where it is counted, in one line:
//
//   metrics.counter("evictions", "Blocks that were dropped from the prefix cache.", evictions_);
//
// `troupe status`, its JSON, the Prometheus text and the client library print whatever is in the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// What kind of value a Metric has.
enum class MetricKind : std::uint8_t {
  counter,    ///< a sum since the start of the server
  gauge,      ///< the value now
  histogram,  ///< a distribution of seconds
};

/// One value of a server.
struct Metric {
  std::string name{};                                         ///< with its labels unique; docs/metrics.md lists them
  std::string help{};                                         ///< a sentence
  MetricKind kind = MetricKind::gauge;                        ///< what `value` is
  double value = 0;                                           ///< of a histogram: the sum in seconds
  std::vector<std::pair<std::string, std::string>> labels{};  ///< names and values
  std::vector<std::uint64_t> counts{};  ///< of a histogram: by the bounds of all histograms, one more above the last
  std::string key{};                    ///< its name in JSON and in MetricList::value(); empty: it has none
  bool for_guests = false;              ///< in the server: whether users other than its owner may read it
};

/// What a Metric can have beside name, help and value.
struct MetricExtras {
  std::vector<std::pair<std::string, std::string>> labels{};  ///< names and values
  std::string_view key{};                                     ///< empty: the name, if there are no labels
  bool for_guests = false;                                    ///< as in Metric
};

/// The metrics of a server.
class MetricList {
 public:
  /// An empty list.
  MetricList() = default;
  /// A list of these, as they are.
  explicit MetricList(std::vector<Metric> all) : all_(std::move(all)) {}

  /// Appends a metric, or adds its value to the one of the same name and labels. O(size()).
  void add(Metric metric) {
    for (Metric& old : all_) {
      if (old.name != metric.name || old.labels != metric.labels) continue;
      old.value += metric.value;
      for (std::size_t i = 0; i < metric.counts.size() && i < old.counts.size(); ++i) old.counts[i] += metric.counts[i];
      return;
    }
    append(std::move(metric));
  }
  /// Appends a metric whose name and labels no other one has. O(1).
  void append(Metric metric) { all_.push_back(std::move(metric)); }
  /// Appends a sum since the start. Names have no "_total": Prometheus' text adds it.
  void counter(std::string_view name, std::string_view help, double value, MetricExtras extras = {}) {
    add(MetricKind::counter, name, help, value, std::move(extras));
  }
  /// Appends a value that goes up and down.
  void gauge(std::string_view name, std::string_view help, double value, MetricExtras extras = {}) {
    add(MetricKind::gauge, name, help, value, std::move(extras));
  }

  /// The metric with this key; null if there is none.
  [[nodiscard]] const Metric* find(std::string_view key) const {
    for (const Metric& metric : all_)
      if (metric.key == key) return &metric;
    return nullptr;
  }
  /// The value of the metric with this key; 0 if there is none.
  [[nodiscard]] double value(std::string_view key) const {
    const Metric* const metric = find(key);
    return metric ? metric->value : 0;
  }
  /// value() of what is counted in whole numbers; 0 for a value that no counter can have.
  [[nodiscard]] std::uint64_t count(std::string_view key) const {
    const double found = value(key);
    return found > 0 && found < 0x1p63 ? static_cast<std::uint64_t>(found) : 0;
  }

  [[nodiscard]] auto begin() const { return all_.begin(); }       ///< the first
  [[nodiscard]] auto end() const { return all_.end(); }           ///< behind the last
  [[nodiscard]] std::size_t size() const { return all_.size(); }  ///< how many there are

 private:
  void add(MetricKind kind, std::string_view name, std::string_view help, double value, MetricExtras extras) {
    if (extras.key.empty() && extras.labels.empty()) extras.key = name;
    add({std::string(name),
         std::string(help),
         kind,
         value,
         std::move(extras.labels),
         {},
         std::string(extras.key),
         extras.for_guests});
  }

  std::vector<Metric> all_;
};

}  // namespace troupe
