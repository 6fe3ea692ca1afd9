// The part of the time that each tenant was computed for, of late.
#pragma once

#include <cmath>
#include <cstddef>
#include <unordered_map>

#include "cache/ids.h"

namespace troupe::scheduler {

// Means that decay over kMemorySeconds. Times are seconds of any clock. Not thread-safe. O(1), but for what its comment
// says.
class RecentUse {
 public:
  static constexpr double kMemorySeconds = 30;
  static constexpr double kLeast = 0.02;           // less is no use
  static constexpr std::size_t kMaxTenants = 256;  // one more, and those without use are forgotten

  // O(tenants) when there are kMaxTenants.
  void add(TenantId tenant, double weight, double seconds, double now) {
    if (tenants_.size() >= kMaxTenants && !tenants_.contains(tenant))
      std::erase_if(tenants_, [&](const auto& entry) { return entry.second.part_at(now) < kLeast; });
    Use& use = tenants_[tenant];
    use.part = use.part_at(now) + seconds / kMemorySeconds;
    use.at = now;
    use.weight = weight;
  }
  // Calls use(tenant, weight, part) for each with a part of at least kLeast; together they have at most about 1.
  // O(tenants).
  template <class Call>
  void for_each(double now, const Call& use) const {
    for (const auto& [tenant, of] : tenants_)
      if (const double part = of.part_at(now); part >= kLeast) use(tenant, of.weight, part);
  }

 private:
  struct Use {
    double part = 0, at = 0, weight = 1;
    [[nodiscard]] double part_at(double now) const { return part * std::exp((at - now) / kMemorySeconds); }
  };
  std::unordered_map<TenantId, Use> tenants_;
};

}  // namespace troupe::scheduler
