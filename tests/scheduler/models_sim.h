// A server with more models than memory, in simulated time: tenants with clients that ask, think and ask again, loads
// and unloads that take their time and may fail, and a machine that the running requests share. Decisions come from
// ModelResidency, or, for comparison, from LruOnDemand; the simulation holds them to what they promise.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "scheduler/models/residency.h"

namespace troupe::scheduler {

struct SimModel {
  std::uint64_t bytes = 1;
  double load_seconds = 5;
  double keep_alive = kForever;
  bool pinned = false;
  double failure_probability = 0;  // of each load
};

struct SimTenant {
  std::uint32_t num_clients = 2;
  double weight = 1;
  MayLoad may_load = MayLoad::turns;
  std::uint32_t favourite = 0;           // this model is its first by Zipf's law, the next ones follow
  std::optional<double> zipf{}, stay{};  // in place of those of all
};

struct ModelsSimOptions {
  std::uint64_t seed = 1;
  std::vector<SimModel> models{};
  std::vector<SimTenant> tenants{};
  std::uint64_t budget = 1;
  std::uint32_t max_models = 1000, max_loading = 1;
  double zipf = 1;                 // exponent
  double stay = 0.7;               // that a client asks the same model again
  double think_seconds = 5;        // mean, between two requests of a client; exponential
  double work_seconds = 4;         // mean, of a request that runs alone; exponential
  double longest_work = 120;       // of one
  double speed_beside_load = 0.7;  // of computing while a model is loaded
  double cancel_probability = 0;   // that a client goes away, some time later
  double seconds = 3600;
  double max_wait_seconds = kForever;
  double drain_seconds = 60;
  bool lru = false;  // decisions of LruOnDemand
};

struct ModelsSimReport {
  std::uint64_t num_requests = 0;  // that were served to their end
  std::uint64_t num_refused = 0, num_interrupted = 0, num_cancelled = 0, num_failed_loads = 0;
  std::uint64_t num_loads = 0;
  double loading_share = 0;  // of the time
  double lost_share = 0;     // of the time: requests wait, and none runs
  double mean_wait = 0, p99_wait = 0, longest_wait = 0;
  double served_seconds = 0;                   // the work of requests
  double jain = 0;                             // of the tenants' work, divided by their weights
  std::vector<double> served{}, mean_waits{};  // by tenant
  std::uint64_t trace = 0;                     // a hash of all decisions and their times
  double reported_share = 0;                   // ModelResidency::loading_share() at the end
};

// Runs a simulation to its end, and fails the test case where a decision breaks a promise:
//   - models in memory take no more than the budget, and are no more than may be;
//   - each request ends once, and is served by a model that is loaded;
//   - a pinned model is not put out, nor one with requests, but after drain_seconds;
//   - for a tenant that may load into idle memory only, no model goes that another has used within its keep-alive;
//   - while a model is waited for that a tenant may have turns of, each other one is loaded at most once before it, and
//     no longer than a turn, a drain and an unload pass until the next load.
// The last two are not asked of LruOnDemand.
[[nodiscard]] ModelsSimReport run_models_sim(const ModelsSimOptions& options);

}  // namespace troupe::scheduler
