// What `troupe status` prints of a server's status, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ipc/client/client.h"

namespace troupe::cli {

// Everything; the metrics as a list, and those with a key also under that.
[[nodiscard]] nlohmann::ordered_json status_json(const client::ServerStatus& s,
                                                 const std::vector<client::ModelDescription>& models);

// A few lines for people; verbose: and a line for every metric.
[[nodiscard]] std::string status_text(const client::ServerStatus& s, bool verbose);

}  // namespace troupe::cli
