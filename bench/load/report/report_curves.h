// The charts of a load run, thinned to what is visible.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/load/report/report_chart.h"
#include "bench/load/report/report_format.h"

namespace troupe::load {

// The share of `sorted` (milliseconds, not empty) at or below each value, with p50, p90 and p99 marked; on a
// logarithmic axis if the values span more than a factor of 30. `limit_ms`: the goodput limit. At most 500 points.
[[nodiscard]] Chart cdf_chart(const LatencyRow& row, std::span<const double> sorted, std::optional<double> limit_ms);

// Charts over the time of the run, all with the same axis: requests by state, step times, tokens, blocks in use, and
// refusals; charts without data are left out. At most 500 points each.
[[nodiscard]] std::vector<Chart> timeline_charts(const Run& run);

// Each tenant's tokens over time, and its distributions of TTFT and inter-token latency, a line for each of the first
// kMaxTenantLines tenants; empty without tenants. At most 500 points a line. The lines have no legend in the drawing.
[[nodiscard]] std::vector<Chart> tenant_charts(const Run& run);

}  // namespace troupe::load
