// What a load run must come to: a run that misses a goal has failed, whatever its figures are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/load/record.h"
#include "bench/load/summary.h"
#include "config/result.h"

namespace troupe::load {

struct Goals {
  Goodput limits{};
  double good_share = 0;                        // least share of the undisturbed requests within the limits
  std::optional<std::uint64_t> max_failed = 0;  // absent: any number
  std::optional<std::uint64_t> max_refused{};
};

// "ttft:500", several of them separated by commas or as several texts; the keys are those of `vllm bench serve`: ttft,
// tpot and e2el, in milliseconds. Error: invalid_argument, naming the text.
[[nodiscard]] Result<Goodput> parse_goodput(const std::vector<std::string>& texts);

// One sentence for each goal that was missed. Always a goal: every request ended exactly once, by the records and by
// the server's counters; every answer that was compared is the one of the same request alone; the server holds no block
// once nothing runs; garbage is answered.
[[nodiscard]] std::vector<std::string> missed_goals(const Run& run, const Summary& summary, const Goals& goals);

}  // namespace troupe::load
