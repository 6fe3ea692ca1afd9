// The part of the reports that compares tenants. Everything is empty for a run without tenants.
#pragma once

#include <string>
#include <vector>

#include "bench/load/report/fairness.h"
#include "bench/load/report/report.h"
#include "bench/load/report/report_chart.h"

namespace troupe::load {

// Cells as they are printed: the first column is a tenant's name, and the other columns are aligned to the right.
struct Table {
  std::string title{};
  std::string note{};  // below it; may be empty
  std::vector<std::string> columns{};
  std::vector<std::vector<std::string>> rows{};  // each with as many cells as there are columns
};

// Requests and throughput, latencies, shares, refusals, retries, and the comparison with each tenant alone; those
// without data are left out.
[[nodiscard]] std::vector<Table> tenant_tables(const ReportHead& head, const Run& run);

// A bar for each tenant's share, with a line at its due share, as inline SVG. `fairness`: of this run.
[[nodiscard]] std::string shares_svg(const Run& run, const Fairness& fairness);

// How a tenant's lines are drawn, in every chart.
inline constexpr std::size_t kMaxTenantLines = 18;  // tenants beyond are in the tables alone
[[nodiscard]] Line tenant_line(const Run& run, std::size_t tenant);

}  // namespace troupe::load
