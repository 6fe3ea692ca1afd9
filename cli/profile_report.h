// Where the time of steps went, as bench and status print it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/compute/profiler.h"

namespace troupe::cli {

// A table for each phase, in Markdown: operations, what their joins cost, and the first, the median and the slowest
// layer; in milliseconds per step.
[[nodiscard]] std::string profile_text(const engine::ProfileSnapshot& profile);
// All of it, in seconds: {"num_threads", "phases": [{"phase", "steps", "operations": [...], ...}]}.
[[nodiscard]] nlohmann::ordered_json profile_json(const engine::ProfileSnapshot& profile);

}  // namespace troupe::cli
