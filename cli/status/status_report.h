// What `troupe status` prints: the server's status as text, JSON or Prometheus text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/terminal/color.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// Everything; the metrics as a list, and those that have a key also under that key.
[[nodiscard]] nlohmann::ordered_json status_json(const client::ServerStatus& s,
                                                 const std::vector<client::ModelDescription>& models);

// Its parts about models: what each of them is, how each is, and what it uses.
[[nodiscard]] nlohmann::ordered_json description_json(const client::ModelDescription& model);
[[nodiscard]] nlohmann::ordered_json health_json(const client::ServerStatus& s);
[[nodiscard]] nlohmann::ordered_json use_json(const client::ServerStatus& s);
[[nodiscard]] nlohmann::ordered_json refused_json(const client::ServerStatus& s);  // refused_most()

// A few lines; verbose: also a line for every metric.
[[nodiscard]] std::string status_text(const client::ServerStatus& s, bool verbose);

// The colour of name_of(): green if it serves, yellow if it will or did, red if it does not.
[[nodiscard]] Color color_of(const client::Health& health);

// "512 ms / 1.2 s": the median and the 99th percentile of a latency in the last one to two minutes; "-" if there was
// none.
[[nodiscard]] std::string recent_latency(const client::ServerStatus& s, const std::string& name);

// A line: what steps were predicted to take, how far off that was lately, and the limit that it is for (--max-stall).
[[nodiscard]] std::string prediction_text(const client::ServerStatus& s);

}  // namespace troupe::cli
