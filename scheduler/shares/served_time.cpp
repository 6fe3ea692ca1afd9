#include "scheduler/shares/served_time.h"

#include <algorithm>
#include <limits>

#include "config/assert.h"

namespace troupe::scheduler {

void ServedTime::begin(TenantId tenant, double weight, double head_start) {
  TROUPE_ASSERT(weight > 0);
  Account& account = accounts_[tenant];
  account.weight = weight;
  if (account.active == 0) {
    const double least = least_served();
    if (least < std::numeric_limits<double>::infinity()) account.served = std::max(account.served, least - head_start);
  }
  ++account.active;
}

void ServedTime::end(TenantId tenant, double head_start) {
  Account& ended = accounts_.at(tenant);
  TROUPE_ASSERT(ended.active > 0);
  if (--ended.active > 0) return;
  // Counters that say nothing go: with no active tenant all of them.
  const double least = least_served() - head_start;
  std::erase_if(accounts_, [&](const auto& entry) { return entry.second.active == 0 && entry.second.served <= least; });
}

void ServedTime::charge(TenantId tenant, double seconds) {
  TROUPE_ASSERT(seconds >= 0);
  Account& account = accounts_[tenant];
  account.served += seconds / account.weight;
}

double ServedTime::served(TenantId tenant) const {
  const auto found = accounts_.find(tenant);
  return found == accounts_.end() ? 0 : found->second.served;
}

double ServedTime::least_served() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [tenant, account] : accounts_)
    if (account.active > 0) least = std::min(least, account.served);
  return least;
}

}  // namespace troupe::scheduler
