#include "bench/load/report/report_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "bench/load/report/report_tenants.h"

namespace troupe::load {
namespace {

constexpr std::size_t kMaxPoints = 500;
constexpr double kTimelineWidth = 1080, kTimelineHeight = 190;
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMaxReasons = 5;  // further ones are drawn as "other"

// The smallest of 1, 2 or 5 times a power of ten that is not below `value` > 0.
double round_up(double value) {
  const double decade = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= value * (1 - 1e-9)) return factor * decade;
  return 10 * decade;
}

// Headroom for the highest value, so that it does not touch the frame.
Axis axis_up_to(std::string title, double highest, Unit unit = Unit::plain) {
  return {.title = std::move(title), .unit = unit, .min = 0, .max = highest > 0 ? 1.08 * highest : 1};
}

double highest(const std::vector<Line>& lines) {
  double value = 0;
  for (const Line& line : lines)
    for (const Point& point : line.points)
      if (!std::isnan(point.y)) value = std::max(value, point.y);
  return value;
}

// The run's time in equal bins of a round width.
struct Bins {
  double width = 1;
  std::size_t count = 1;

  explicit Bins(double duration_s)
      : width(round_up(std::max(duration_s, 1e-3) / 240)),
        count(std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(duration_s / width)))) {}
  std::size_t index(double at_s) const {
    return std::min(count - 1, static_cast<std::size_t>(std::max(0.0, at_s) / width));
  }
  double begin(std::size_t bin) const { return static_cast<double>(bin) * width; }
};

// The end of the time axis: the run's duration, or the last end or sample if that is later.
double end_of(const Run& run) {
  double end_s = std::max(run.duration_s, 1e-3);
  for (const RequestRecord& record : run.records) end_s = std::max(end_s, record.end_s);
  return end_s;
}

Chart timeline(std::string id, std::string title, std::string summary, double end_s) {
  Chart chart;
  chart.id = std::move(id);
  chart.title = std::move(title);
  chart.summary = std::move(summary);
  chart.width = kTimelineWidth;
  chart.height = kTimelineHeight;
  chart.x = {.title = "seconds since the start", .unit = Unit::plain, .min = 0, .max = end_s};
  return chart;
}

// At most kMaxPoints; of points in the same bin the highest is kept, so that peaks stay visible.
std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<Point> kept(kMaxPoints, Point{0, kNothing});
  for (std::size_t i = 0; i < points.size(); ++i) {
    Point& slot = kept[i * kMaxPoints / points.size()];
    if (std::isnan(slot.y) || points[i].y > slot.y) slot = {std::isnan(slot.y) ? points[i].x : slot.x, points[i].y};
  }
  return kept;
}

std::vector<Point> gauge(const std::vector<ServerSample>& samples,
                         const std::function<double(const ServerSample&)>& of) {
  std::vector<Point> points;
  points.reserve(samples.size());
  for (const ServerSample& sample : samples) points.push_back({sample.at_s, of(sample)});
  return thinned(points);
}

// The number of requests over time that are within the interval stay(request), as the clients see it.
std::vector<Point> census(const Run& run, const std::function<std::pair<double, double>(const RequestRecord&)>& stay) {
  std::map<double, int> changes;
  for (const RequestRecord& record : run.records) {
    const auto [from, to] = stay(record);
    if (to <= from) continue;
    ++changes[from];
    --changes[to];
  }
  std::vector<Point> points;
  points.reserve(changes.size());
  int now = 0;
  for (const auto& [at, change] : changes) points.push_back({at, static_cast<double>(now += change)});
  return thinned(points);
}

Chart requests_chart(const Run& run, double end_s) {
  Chart chart = timeline("requests", "Requests by state", "", end_s);
  if (!run.samples.empty()) {
    const auto number = [](std::uint64_t count) { return static_cast<double>(count); };
    chart.lines = {{"running", 1, 0, gauge(run.samples, [&](const auto& s) { return number(s.running); }), true, true},
                   {"queued", 2, 1, gauge(run.samples, [&](const auto& s) { return number(s.waiting); }), true},
                   {"parked", 3, 2, gauge(run.samples, [&](const auto& s) { return number(s.parked); }), true}};
    chart.summary = "As the server counts: in the batch, before their first step, and stopped by their reader.";
  } else {
    const auto first = [](const RequestRecord& r) { return r.arrivals.empty() ? r.end_s : r.arrivals.front().at_s; };
    chart.lines = {
        {"receiving", 1, 0, census(run, [&](const auto& r) { return std::pair(first(r), r.end_s); }), true, true},
        {"waiting for the first token", 2, 1, census(run, [&](const auto& r) { return std::pair(r.sent_s, first(r)); }),
         true}};
    chart.summary = "As the clients saw it; the server was not asked.";
  }
  chart.y = axis_up_to("requests", highest(chart.lines));
  return chart;
}

Chart steps_chart(const Run& run, double end_s) {
  Chart chart = timeline("steps", "Time of a step", "Mean of the steps between two samples of the server.", end_s);
  std::vector<Point> points;
  for (std::size_t i = 1; i < run.samples.size(); ++i) {
    const ServerSample &before = run.samples[i - 1], &after = run.samples[i];
    const double steps = static_cast<double>(after.steps) - static_cast<double>(before.steps);
    points.push_back({before.at_s, steps > 0 ? 1e3 * (after.step_seconds - before.step_seconds) / steps : kNothing});
  }
  chart.lines = {{"", 4, 0, thinned(points), true, true}};
  chart.y = axis_up_to("mean time of a step", highest(chart.lines), Unit::milliseconds);
  return chart;
}

// Tokens received per second, in bins.
std::vector<Point> tokens_over_time(std::span<const RequestRecord> records, double end_s) {
  const Bins bins(end_s);
  std::vector<Point> points(bins.count + 1);
  for (std::size_t i = 0; i <= bins.count; ++i) points[i].x = std::min(bins.begin(i), end_s);
  for (const RequestRecord& record : records)
    for (const Arrival& arrival : record.arrivals)
      points[bins.index(arrival.at_s)].y += arrival.num_tokens / bins.width;
  points[bins.count].y = points[bins.count - 1].y;
  return points;
}

Chart tokens_chart(const Run& run, double end_s) {
  Chart chart = timeline("tokens", "Tokens received", "By all clients together, per second.", end_s);
  chart.lines = {{"", 1, 0, tokens_over_time(run.records, end_s), true, true}};
  chart.y = axis_up_to("tokens per second", highest(chart.lines));
  return chart;
}

Chart blocks_chart(const Run& run, double end_s) {
  Chart chart = timeline("blocks", "Cache blocks in use", "Held by sequences or kept as prefixes, of all.", end_s);
  chart.lines = {{"", 3, 0,
                  gauge(run.samples,
                        [](const ServerSample& s) {
                          return s.blocks_total > 0 ? 100.0 * (s.blocks_total - s.blocks_free) / s.blocks_total
                                                    : kNothing;
                        }),
                  true, true}};
  chart.y = {.title = "share of the blocks", .unit = Unit::percent, .min = 0, .max = 100};
  return chart;
}

Chart refusals_chart(const Run& run, double end_s) {
  Chart chart = timeline("refusals", "Refusals", "By reason, when they came.", end_s);
  std::map<std::string, std::size_t> totals;
  for (const RequestRecord& record : run.records)
    if (verdict(record) == Verdict::refused) ++totals[record.outcome];
  std::vector<std::pair<std::size_t, std::string>> reasons;  // most frequent first
  reasons.reserve(totals.size());
  for (const auto& [reason, total] : totals) reasons.emplace_back(total, reason);
  std::sort(reasons.begin(), reasons.end(), std::greater<>());

  const Bins bins(end_s);
  chart.bar_width = bins.width;
  std::map<std::string, std::size_t> series;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    series[reasons[i].second] = std::min(i, kMaxReasons);
    if (i > kMaxReasons) continue;
    const int color[] = {2, 5, 4, 1, 3, 6};
    chart.bars.push_back({i == kMaxReasons ? "other" : reasons[i].second, color[i], std::vector<Point>(bins.count)});
    for (std::size_t bin = 0; bin < bins.count; ++bin) chart.bars.back().points[bin].x = bins.begin(bin);
  }
  std::vector<double> sums(bins.count);
  for (const RequestRecord& record : run.records) {
    if (verdict(record) != Verdict::refused) continue;
    const std::size_t bin = bins.index(record.end_s);
    ++chart.bars[series[record.outcome]].points[bin].y;
    ++sums[bin];
  }
  chart.y = axis_up_to("refused in " + tick_label(1e3 * bins.width, Unit::milliseconds),
                       *std::max_element(sums.begin(), sums.end()));
  return chart;
}

// `low`: not the least value but a low percentile: a few tiny values would stretch a logarithmic axis over empty
// decades.
Axis latency_axis(const std::string& title, double low, double high) {
  low = std::max(low, 1e-3);
  if (high > 30 * low)
    return {.title = title, .unit = Unit::milliseconds, .min = 0.9 * low, .max = 1.1 * high, .logarithmic = true};
  return {.title = title, .unit = Unit::milliseconds, .min = 0, .max = high > 0 ? 1.02 * high : 1};
}

// From the least value to the end of the axis. Uses the same ranks that percentile() interpolates between, so that
// percentiles lie on the line.
std::vector<Point> cdf_points(std::span<const double> sorted, double axis_end) {
  std::vector<Point> points = {{sorted.front(), 0}};
  const std::size_t parts = std::clamp<std::size_t>(sorted.size() - 1, 1, kMaxPoints - 3);
  for (std::size_t i = 0; i <= parts; ++i) {
    const double share = 100.0 * static_cast<double>(i) / static_cast<double>(parts);
    points.push_back({percentile(sorted, share), share});
  }
  points.push_back({axis_end, 100});
  return points;
}

// One distribution for each tenant that has values. No lines: no tenant has any.
Chart tenants_cdf(const Run& run, const std::string& id, const std::string& title,
                  std::vector<double> Latencies::*kind) {
  Chart chart;
  chart.id = "tenants-" + id;
  chart.title = title + " by tenant";
  chart.summary = "Share of each tenant's values at or below a time.";
  chart.y = {.title = "share at or below", .unit = Unit::percent, .min = 0, .max = 100};
  double low = std::numeric_limits<double>::infinity(), high = 0;
  std::vector<std::vector<double>> values;
  for (std::size_t i = 0; i < std::min(run.tenants.size(), kMaxTenantLines); ++i) {
    Latencies latencies = latencies_of(records_of(run, run.tenants[i]));
    values.push_back(std::move(latencies.*kind));
    if (values.back().empty()) continue;
    low = std::min(low, percentile(values.back(), 1));
    high = std::max(high, values.back().back());
  }
  chart.x = latency_axis(title, low, high);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty()) continue;
    chart.lines.push_back(tenant_line(run, i));
    chart.lines.back().label.clear();
    chart.lines.back().points = cdf_points(values[i], chart.x.max);
  }
  return chart;
}

}  // namespace

std::vector<Chart> tenant_charts(const Run& run) {
  if (run.tenants.empty()) return {};
  const double end_s = end_of(run);
  std::vector<Chart> charts = {
      timeline("tenants-tokens", "Tokens received by tenant", "By each tenant's clients together, per second.", end_s)};
  for (std::size_t i = 0; i < std::min(run.tenants.size(), kMaxTenantLines); ++i) {
    Line line = tenant_line(run, i);
    line.label.clear();
    line.points = tokens_over_time(records_of(run, run.tenants[i]), end_s);
    line.steps = true;
    charts.front().lines.push_back(std::move(line));
  }
  charts.front().y = axis_up_to("tokens per second", highest(charts.front().lines));
  charts.push_back(tenants_cdf(run, "ttft", "Time to first token", &Latencies::ttft));
  charts.push_back(tenants_cdf(run, "itl", "Inter-token latency", &Latencies::itl));
  std::erase_if(charts, [](const Chart& chart) { return chart.lines.empty(); });
  return charts;
}

Chart cdf_chart(const LatencyRow& row, std::span<const double> sorted, std::optional<double> limit_ms) {
  Chart chart;
  chart.id = "cdf-" + row.key;
  chart.title = row.title;
  const Distribution& d = *row.values;
  const auto time = [](double ms) { return tick_label(ms, Unit::milliseconds); };
  chart.summary = fmt::format("Share of {} values at or below a time. Median {}, p99 {}, longest {}.", grouped(d.count),
                              time(d.median), time(d.p99), time(d.max));
  chart.y = {.title = "share at or below", .unit = Unit::percent, .min = 0, .max = 100};

  chart.x = latency_axis(row.title, percentile(sorted, 1), std::max(d.max, limit_ms.value_or(0)));
  chart.lines = {{"", 1, 0, cdf_points(sorted, chart.x.max), false, true}};
  for (const auto& [name, percent, value] : {std::tuple("p50", 50, d.median), {"p90", 90, d.p90}, {"p99", 99, d.p99}})
    chart.marks.push_back({{value, static_cast<double>(percent)}, fmt::format("{}  {}", name, time(value))});
  if (limit_ms) chart.limits = {{{*limit_ms, 0}, "limit " + time(*limit_ms)}};
  return chart;
}

std::vector<Chart> timeline_charts(const Run& run) {
  const double end_s = end_of(run);
  std::vector<Chart> charts = {requests_chart(run, end_s)};
  const Summary summary = summarize(run, {});
  if (summary.steps > 0) charts.push_back(steps_chart(run, end_s));
  charts.push_back(tokens_chart(run, end_s));
  if (!run.samples.empty() && run.samples.back().blocks_total > 0) charts.push_back(blocks_chart(run, end_s));
  if (summary.refused > 0) charts.push_back(refusals_chart(run, end_s));
  return charts;
}

}  // namespace troupe::load
