// Traces: the requests of a run, one JSON object per line. The requests of a run can be written and sent again, and
// published traces can be replayed.
//
//   {"at_s": 0.25, "prompt_ids": [1, 424], "max_tokens": 64, "seed": 7, "temperature": 0.8}
//
//   at_s           when it is sent, in seconds since the start, not less than in the line above; or "timestamp" in
//                  milliseconds. Absent: 0.
//   prompt         text; or prompt_ids: exact ids; or prompt_tokens (also input_length): that many ids, drawn from the
//                  run's seed and the line's number. With hash_ids (the published Mooncake traces) the ids are drawn
//                  for each hash, 512 to a hash, so that equal beginnings stay equal.
//   max_tokens     also output_length
//   seed           of sampling; absent: the run's seed plus the number of the line
//   prefix         number of the shared prefix that it begins with; only for the report
//   temperature, top_k, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty, repeat_last_n, ignore_eos
//                  of sampling; absent: the run's
//   fault, fault_after_tokens, fault_delay_s, fault_choice   the injected fault ("cancel", "disconnect",
//                  "slow_reader", "garbage") and its FaultPoint
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "bench/load/plan.h"
#include "config/result.h"

namespace troupe::load {

// The request as a line, without the line end. read_trace() returns the same request except for its index.
[[nodiscard]] std::string to_trace_line(const PlannedRequest& request);

// Reads all lines; empty ones are skipped. Values that a line does not have come from `spec`: seed, sampling,
// vocabulary.
// Error: invalid_argument, with the number of the line: no JSON, an unknown key, a value out of its range, no prompt or
// more than one, no max_tokens, an arrival before the one above.
[[nodiscard]] Result<std::vector<PlannedRequest>> read_trace(std::istream& in, const PlanSpec& spec);

}  // namespace troupe::load
