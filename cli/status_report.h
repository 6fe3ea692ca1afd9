// What `troupe status` prints: the server's status as text, JSON or Prometheus text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ipc/client/client.h"

namespace troupe::cli {

// Everything; the metrics as a list, and those that have a key also under that key.
[[nodiscard]] nlohmann::ordered_json status_json(const client::ServerStatus& s,
                                                 const std::vector<client::ModelDescription>& models);

// A few lines; verbose: also a line for every metric.
[[nodiscard]] std::string status_text(const client::ServerStatus& s, bool verbose);

// A line: what steps were predicted to take, how far off that was lately, and the limit that it is for (--max-stall).
[[nodiscard]] std::string prediction_text(const client::ServerStatus& s);

// Prometheus' text format 0.0.4. Names are "troupe:" and vLLM's name for the same metric, if it has one; units are
// seconds and bytes; counters end with _total. Every metric has the label model_name; docs/metrics.md lists them.
[[nodiscard]] std::string to_prometheus(const client::ServerStatus& status);

}  // namespace troupe::cli
