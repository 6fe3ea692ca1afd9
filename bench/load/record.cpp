#include "bench/load/record.h"

#include <algorithm>

namespace troupe::load {

void add_arrival(RequestRecord& record, double at_s, std::uint32_t num_tokens) {
  if (!record.arrivals.empty() && record.arrivals.back().at_s == at_s)
    record.arrivals.back().num_tokens += num_tokens;
  else
    record.arrivals.push_back({at_s, num_tokens});
}

void measure_span(Run& run) {
  if (run.records.empty()) return;
  double begin_s = run.records.front().intended_s, end_s = begin_s;
  for (const RequestRecord& record : run.records) {
    begin_s = std::min(begin_s, record.intended_s);
    end_s = std::max(end_s, record.end_s);
    run.max_send_lag_s = std::max(run.max_send_lag_s, record.sent_s - record.intended_s);
  }
  run.duration_s = end_s - begin_s;
}

}  // namespace troupe::load
