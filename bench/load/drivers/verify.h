// Checks that a request's tokens depend on the request only: every answer of a run is compared with the answer to the
// same request run alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/load/drivers/troupe_driver.h"
#include "bench/load/drivers/troupe_server.h"
#include "config/result.h"

namespace troupe::load {

struct Mismatch {
  std::uint64_t index = 0;  // of the request
  std::string what{};       // "token 17 is 412, alone it is 98"
};

struct Verification {
  std::uint64_t compared = 0;
  std::uint64_t runs = 0;  // requests that were run alone; equal requests share one
  std::vector<Mismatch> mismatches{};
};

// Compares the answer to a request that ended as in `record` with `alone`, the whole answer to the same request run
// alone. Returns the difference; empty: none. An answer that was cut (cancelled, failed, disconnected) must be a prefix
// of `alone`.
[[nodiscard]] std::string difference(const RequestRecord& record, const Answer& answer, const Answer& alone,
                                     const std::string& alone_outcome);

struct VerifyOptions {
  std::string model{};                      // empty: the only or default model
  std::string cache_scope{};                // the names of the requests' own scopes begin with it
  const std::atomic<bool>* stop = nullptr;  // true: return early
  std::function<void(std::uint64_t done)> on_progress{};
};

// Compares every record that has tokens, or that is done, and sets its `verified`. The requests run one at a time, each
// in its own cache scope, so that none finds cached blocks. Error: a request could not be run alone.
[[nodiscard]] Result<Verification> verify_alone(const Plan& plan, TroupeServer& server, const VerifyOptions& options,
                                                TroupeRun& run);

}  // namespace troupe::load
