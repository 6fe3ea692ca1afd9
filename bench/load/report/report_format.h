// Numbers as the reports print them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/load/report/report.h"

namespace troupe::load {

[[nodiscard]] std::string fixed(double value, int decimals);
[[nodiscard]] std::string grouped(std::uint64_t count);  // "51,200"
// Three significant digits; grouped above 999: "0.42", "12.3", "1,234".
[[nodiscard]] std::string brief(double value);
[[nodiscard]] std::string percent(double share);  // "12.5 %"

// "queue_full 12, quota 3", the most frequent first; empty for none.
[[nodiscard]] std::string counts(const std::map<std::string, std::size_t>& by_name);
// "TTFT <= 500 ms, TPOT <= 50 ms"; empty if there are no limits.
[[nodiscard]] std::string limits(const Goodput& goodput);

// The kinds of latency in the order in which they are shown.
struct LatencyRow {
  std::string name;   // "TTFT"
  std::string key;    // "ttft", as in the JSON's "mean_ttft_ms"
  std::string title;  // "Time to first token"
  std::string definition;
  const Distribution* values;
};

[[nodiscard]] std::vector<LatencyRow> latency_rows(const Summary& summary);

// The results of a run beside latencies, as (label, value): requests, ends, verification, cache, steps, overhead.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> findings(const Run& run, const Summary& summary,
                                                                        const Goodput& goodput);

}  // namespace troupe::load
