#include "scheduler/shares/fair_shares.h"

#include <algorithm>
#include <limits>

#include "config/assert.h"

namespace troupe::scheduler {

void FairShares::begin(TenantId tenant, double weight) {
  TROUPE_ASSERT(weight > 0);
  Share& share = shares_[tenant];
  share.weight = weight;
  if (share.active == 0) {
    const double least = least_served();
    if (least < std::numeric_limits<double>::infinity()) share.served = std::max(share.served, least - head_start());
  }
  ++share.active;
}

void FairShares::end(TenantId tenant) {
  Share& ended = shares_.at(tenant);
  TROUPE_ASSERT(ended.active > 0);
  if (--ended.active > 0) return;
  // Counters that say nothing go: with no active tenant all of them, else those that begin() would lift.
  const double least = least_served() - head_start();
  std::erase_if(shares_, [&](const auto& entry) {
    const Share& share = entry.second;
    return share.active == 0 && share.places + share.claims == 0 && share.served <= least;
  });
}

double FairShares::least_served() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [tenant, share] : shares_)
    if (share.active > 0) least = std::min(least, share.served);
  return least;
}

void FairShares::charge(TenantId tenant, double seconds) {
  TROUPE_ASSERT(seconds >= 0);
  // A tenant without requests any more pays, too: cancelling before a step ends makes it no cheaper.
  Share& share = shares_[tenant];
  share.served += seconds / share.weight;
  if (on_charge_) on_charge_(tenant, seconds);
}

void FairShares::step_ended(double seconds) {
  TROUPE_ASSERT(seconds >= 0);
  const double twice = 2 * seconds;
  allowance_ += (twice - allowance_) / (allowance_ == 0 ? 1 : 8);
}

double FairShares::served(TenantId tenant) const {
  const auto found = shares_.find(tenant);
  return found == shares_.end() ? 0 : found->second.served;
}

void FairShares::clear_places() {
  for (auto& [tenant, share] : shares_) share.places = 0;
}

std::uint32_t FairShares::places(TenantId tenant) const {
  const auto found = shares_.find(tenant);
  return found == shares_.end() ? 0 : found->second.places;
}

void FairShares::withdraw_claim(TenantId tenant) {
  Share& share = shares_.at(tenant);
  TROUPE_ASSERT(share.claims > 0);
  --share.claims;
}

std::uint32_t FairShares::places_and_claims(TenantId tenant) const {
  const auto found = shares_.find(tenant);
  return found == shares_.end() ? 0 : found->second.places + found->second.claims;
}

bool FairShares::goes_before(TenantId a, TenantId b) const {
  const std::uint32_t places_a = places_and_claims(a), places_b = places_and_claims(b);
  return places_a != places_b ? places_a < places_b : served(a) < served(b);
}

}  // namespace troupe::scheduler
