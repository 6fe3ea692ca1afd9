// Records of requests, made by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/load/record.h"

namespace troupe::load::test {

struct Completed {
  double intended_s = 0;
  std::vector<Arrival> arrivals{};
  double end_s = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
};

// Sent when it should have been, and ended once by its length.
inline RequestRecord completed(Completed what) {
  RequestRecord record;
  record.intended_s = record.sent_s = what.intended_s;
  record.end_s = what.end_s;
  for (const Arrival& arrival : what.arrivals) record.completion_tokens += arrival.num_tokens;
  record.arrivals = std::move(what.arrivals);
  record.prompt_tokens = what.prompt_tokens;
  record.cached_tokens = what.cached_tokens;
  record.num_ends = 1;
  record.kind = EndKind::done;
  record.outcome = "length";
  return record;
}

// Ended once, without a token.
inline RequestRecord ended(EndKind kind, std::string outcome) {
  RequestRecord record;
  record.num_ends = 1;
  record.kind = kind;
  record.outcome = std::move(outcome);
  return record;
}

// A run of tenants a, b, ... of weight 1 with these requests.
inline Run run_of_tenants(const std::vector<std::vector<RequestRecord>>& requests) {
  Run run;
  for (const std::vector<RequestRecord>& of_tenant : requests) {
    run.tenants.push_back({.name = std::string(1, static_cast<char>('a' + run.tenants.size())),
                           .first = run.records.size(),
                           .count = of_tenant.size()});
    for (std::size_t i = 0; i < of_tenant.size(); ++i) {
      run.records.push_back(of_tenant[i]);
      run.records.back().index = i;
    }
  }
  measure_span(run);
  return run;
}

}  // namespace troupe::load::test
