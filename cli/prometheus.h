// The server's status as Prometheus text, for `troupe status --prometheus`.
#pragma once

#include <string>

#include "ipc/client/client.h"

namespace troupe::cli {

// Text format 0.0.4. Names are "troupe:" and vLLM's name for the same metric, if it has one; units are seconds and
// bytes; counters end with _total. Every metric has the label model_name; docs/metrics.md lists them.
[[nodiscard]] std::string to_prometheus(const client::ServerStatus& status);

}  // namespace troupe::cli
