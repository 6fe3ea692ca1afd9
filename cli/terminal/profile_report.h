// The time of steps by operation, as bench and status print it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/compute/profiler.h"

namespace troupe::cli {

// A Markdown table for each phase: operations, the time of their joins, and the first, the median and the slowest
// layer; in milliseconds per step.
[[nodiscard]] std::string profile_text(const engine::ProfileSnapshot& profile);
// All of it, in seconds: {"num_threads", "phases": [{"phase", "steps", "operations": [...], ...}]}.
[[nodiscard]] nlohmann::ordered_json profile_json(const engine::ProfileSnapshot& profile);

}  // namespace troupe::cli
