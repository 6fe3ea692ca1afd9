// Converts the flags of `troupe load` to a load plan.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/load/plan.h"
#include "bench/load/report/goals.h"
#include "bench/load/report/report.h"
#include "config/options/options.h"
#include "config/result.h"

namespace troupe::cli {

// Error: invalid_argument, for flags that contradict each other or the plan, and for a trace that cannot be read (io).
// `start_s`: when the first request is sent, after the start of the run.
[[nodiscard]] Result<load::Plan> make_load_plan(const config::LoadOptions& options, const load::Vocabulary& vocabulary,
                                                double start_s = 0);

[[nodiscard]] Result<load::Goals> make_goals(const config::LoadOptions& options, const config::Given& given);

// The number of connections that the requests share.
[[nodiscard]] std::uint32_t num_connections(const config::LoadOptions& options, const load::Plan& plan);

// The settings as shown in the report: ("load", "closed loop, 64 clients"), ...
[[nodiscard]] std::vector<std::pair<std::string, std::string>> describe(const config::LoadOptions& options,
                                                                        const load::Plan& plan);

}  // namespace troupe::cli
