// Checks that every request is counted once: causes each outcome that a client can cause, and compares the answers with
// the counters of Status.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/adversary/client.h"

namespace troupe::adversary {

// A counter that differs from this client's own count.
struct Miscount {
  std::string what;  // "generate quota": kind and outcome, or "received"
  std::uint64_t seen = 0;
  std::uint64_t counted = 0;
};

struct CountsResult {
  std::string error;  // why nothing could be compared; empty: it was
  std::uint64_t num_requests = 0;
  std::vector<Miscount> wrong;
};

// No other client may send requests while it runs.
CountsResult compare_counts(const std::string& socket);

}  // namespace troupe::adversary
