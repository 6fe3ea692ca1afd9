// The reports of a load run: a text table, JSON with the keys of `vllm bench serve`, and an HTML page with charts. All
// three show the same figures, from one Summary.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "bench/load/record.h"
#include "bench/load/report/summary.h"

namespace troupe::load {

// Properties of a run for the reports, in addition to Run::description.
struct ReportHead {
  std::string title{};                         // of the page; empty: "Load test"
  std::string date{};                          // local time in vllm's format, "20261120-214500"
  std::string backend = "troupe";              // or "openai"
  std::string endpoint{};                      // socket or URL
  std::string model{};                         // the server's name for it
  std::optional<double> request_rate{};        // requests per second; absent: as fast as the clients allow ("inf")
  double burstiness = 1;                       // 1: Poisson
  std::optional<std::uint32_t> concurrency{};  // clients of a closed loop, or the most requests at a time
  std::uint64_t seed = 0;
  Goodput goodput{};
  std::vector<std::optional<Summary>> alone{};  // by tenant: its load without the others; absent: was not run
};

// A table in at most 100 columns.
void write_text(const ReportHead& head, const Run& run, const Summary& summary, std::ostream& out);

// One object: the keys of `vllm bench serve --save-detailed` (without the texts), then ours. Bytes from the server that
// are not UTF-8 become U+FFFD.
void write_json(const ReportHead& head, const Run& run, const Summary& summary, std::ostream& out);

// A self-contained page: no script, no network; light or dark as the reader's system is set. All text from outside is
// escaped. Its size does not grow with the number of requests: curves are thinned to what is visible.
void write_html(const ReportHead& head, const Run& run, const Summary& summary, std::ostream& out);

}  // namespace troupe::load
