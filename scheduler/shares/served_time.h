// What the models of a server, together, have served each tenant, in seconds of computing: the counters of FairShares.
// A tenant has one counter, so that what one model computes for it counts when another one decides.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "cache/ids.h"

namespace troupe::scheduler {

// Not thread-safe. O(1), but for what its comment says.
class ServedTime {
 public:
  // One of the tenant's requests begins or ceases to want computing. The caller calls end() once for each begin()
  // (asserted). The weight (above 0, asserted) holds until the next begin() gives another. A tenant that becomes active
  // begins no lower than head_start below the lowest counter of the active ones; when one ceases to be, counters that
  // begin() would lift are forgotten. O(active tenants).
  void begin(TenantId tenant, double weight, double head_start);
  void end(TenantId tenant, double head_start);

  // The tenant's counter grows by seconds (>= 0) / its weight.
  void charge(TenantId tenant, double seconds);
  // The tenant's counter; 0 for a tenant that is not known.
  [[nodiscard]] double served(TenantId tenant) const;

  // A model has tenants that want computing, or has none any more.
  void model_begins() { ++num_busy_models_; }
  void model_ends() { --num_busy_models_; }
  [[nodiscard]] std::uint32_t num_busy_models() const { return num_busy_models_; }

 private:
  struct Account {
    std::uint32_t active = 0;  // requests
    double weight = 1;
    double served = 0;
  };
  [[nodiscard]] double least_served() const;

  // The active tenants, and idle ones that begin() would not lift.
  std::unordered_map<TenantId, Account> accounts_;
  std::uint32_t num_busy_models_ = 0;
};

}  // namespace troupe::scheduler
