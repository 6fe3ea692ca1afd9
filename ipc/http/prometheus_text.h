// The metrics of a server in the text format of Prometheus.
#pragma once

#include <string>

#include "ipc/client/client.h"

namespace troupe::ipc::http {

// Prometheus' text format 0.0.4. Names are "troupe:" and vLLM's name for the same metric, if it has one; units are
// seconds and bytes; counters end with _total. Every metric has the label model_name; docs/metrics.md lists them.
//
// What GET /metrics answers and `troupe status --prometheus` prints. Metrics whose name is none for Prometheus are left
// out: the server may be any program.
[[nodiscard]] std::string prometheus_text(const client::ServerStatus& status);

}  // namespace troupe::ipc::http
