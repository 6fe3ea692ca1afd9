#include "ipc/http/prometheus_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cctype>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "config/metric.h"
#include "config/printable.h"

namespace troupe::ipc::http {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Text that may come from a model file or a server, on one line.
std::string printable(const std::string& text) { return Printable(text, kMaxModelNameBytes).text(); }

// Whether Prometheus accepts it as a name: the server may be any program.
bool is_name(std::string_view name) {
  for (const char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name.front()));
}

MetricFamily family_of(const Metric& metric) {
  const std::string name = "troupe:" + metric.name;
  switch (metric.kind) {
    case MetricKind::counter:
      return {name + "_total", printable(metric.help), MetricType::Counter, {}};
    case MetricKind::gauge:
      return {name, printable(metric.help), MetricType::Gauge, {}};
    case MetricKind::histogram:
      break;
  }
  return {name + "_seconds", printable(metric.help), MetricType::Histogram, {}};
}

// Metrics of a model have its name as a label; the others are of the default one, or of all.
const std::string& model_of(const Metric& metric, const client::ServerStatus& status) {
  for (const auto& [name, value] : metric.labels)
    if (name == "model") return value;
  return status.first_model.empty() ? status.model : status.first_model;
}

ClientMetric sample_of(const Metric& metric, const std::vector<double>& bounds) {
  ClientMetric sample;
  sample.counter.value = sample.gauge.value = sample.histogram.sample_sum = metric.value;
  for (std::size_t i = 0; i < metric.counts.size(); ++i) {
    sample.histogram.sample_count += metric.counts[i];
    if (i < bounds.size())
      sample.histogram.bucket.push_back({sample.histogram.sample_count, bounds[i]});  // +Inf is added
  }
  return sample;
}

}  // namespace

std::string prometheus_text(const client::ServerStatus& status) {
  std::vector<MetricFamily> families;  // the samples of each are together, as the format requires
  std::map<std::string, std::size_t> index;
  for (const Metric& metric : status.metrics) {
    if (!is_name(metric.name)) continue;
    MetricFamily family = family_of(metric);
    const auto [found, is_new] = index.try_emplace(family.name, families.size());
    if (is_new) families.push_back(std::move(family));
    ClientMetric sample = sample_of(metric, status.histogram_bounds);
    sample.label.push_back({"model_name", printable(model_of(metric, status))});
    for (const auto& [name, value] : metric.labels)
      if (is_name(name)) sample.label.push_back({name, printable(value)});
    families[found->second].metric.push_back(std::move(sample));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace troupe::ipc::http
