// The goals of a load run: a run that misses one has failed, whatever its figures are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/load/record.h"
#include "bench/load/report/summary.h"
#include "config/result.h"

namespace troupe::load {

struct Goals {
  Goodput limits{};
  double good_share = 0;                        // the least allowed share of undisturbed requests within the limits
  std::optional<std::uint64_t> max_failed = 0;  // absent: any number
  std::optional<std::uint64_t> max_refused{};
};

// Parses "ttft:500", several of them separated by commas or as several texts; the keys are those of `vllm bench serve`:
// ttft, tpot and e2el, in milliseconds. Error: invalid_argument, naming the text.
[[nodiscard]] Result<Goodput> parse_goodput(const std::vector<std::string>& texts);

// One sentence for each missed goal. These are always goals: every request ended exactly once, by the records and by
// the server's counters; every compared answer equals that of the same request run alone; the server holds no block
// once nothing runs; connections that send garbage are closed.
[[nodiscard]] std::vector<std::string> missed_goals(const Run& run, const Summary& summary, const Goals& goals);

}  // namespace troupe::load
