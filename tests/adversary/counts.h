// Whether every request is counted once: asks for each outcome that can be brought about, and compares what came back
// with what Status says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/adversary/client.h"

namespace troupe::adversary {

// A counter that is not what this client has seen.
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

// While it runs nobody else may ask the server for anything.
CountsResult compare_counts(const std::string& socket);

}  // namespace troupe::adversary
