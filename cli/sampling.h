// The sampling flags that run and load share.
#pragma once

#include "config/options.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// temp, top-k, top-p, min-p, the penalties and seed; the other fields have the client library's defaults.
[[nodiscard]] client::Sampling sampling_of(const config::Options& options);

}  // namespace troupe::cli
