// What the models of a server, together, have served each tenant, in seconds of computing: the counters of FairShares.
// A tenant has one counter, so that what one model computes for it counts when another one decides.
//
// Models charge and decide at the same time, each with shares of its own (FairShares). What they have in common is this
// alone, behind ServedCounters, of which a server has one that is thread-safe: each call is short.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "cache/ids.h"

namespace troupe::scheduler {

// The counters as the shares of a model use them. O(1), but for what its comment says.
class ServedCounters {
 public:
  virtual ~ServedCounters() = default;
  // One of the tenant's requests begins or ceases to want computing. The caller calls end() once for each begin()
  // (asserted). The weight (above 0, asserted) holds until the next begin() gives another. A tenant that becomes active
  // begins no lower than head_start below the lowest counter of the active ones; when one ceases to be, counters that
  // begin() would lift are forgotten. O(active tenants).
  virtual void begin(TenantId tenant, double weight, double head_start) = 0;
  virtual void end(TenantId tenant, double head_start) = 0;

  // The tenant's counter grows by seconds (>= 0) / its weight.
  virtual void charge(TenantId tenant, double seconds) = 0;
  // The tenant's counter; 0 for a tenant that is not known.
  [[nodiscard]] virtual double served(TenantId tenant) const = 0;

  // A model has tenants that want computing, or has none any more.
  virtual void model_begins() = 0;
  virtual void model_ends() = 0;
  [[nodiscard]] virtual std::uint32_t num_busy_models() const = 0;
};

// Not thread-safe.
class ServedTime final : public ServedCounters {
 public:
  void begin(TenantId tenant, double weight, double head_start) override;
  void end(TenantId tenant, double head_start) override;
  void charge(TenantId tenant, double seconds) override;
  [[nodiscard]] double served(TenantId tenant) const override;
  void model_begins() override { ++num_busy_models_; }
  void model_ends() override { --num_busy_models_; }
  [[nodiscard]] std::uint32_t num_busy_models() const override { return num_busy_models_; }

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
