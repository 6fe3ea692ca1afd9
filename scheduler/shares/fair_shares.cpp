#include "scheduler/shares/fair_shares.h"

#include <algorithm>
#include <limits>

#include "config/assert.h"

namespace troupe::scheduler {

FairShares::FairShares(std::shared_ptr<ServedTime> served, double model_weight)
    : served_(std::move(served)), model_weight_(model_weight) {
  TROUPE_ASSERT(model_weight > 0);
}

void FairShares::begin(TenantId tenant, double weight) {
  served_->begin(tenant, weight, head_start());
  if (shares_[tenant].active++ > 0) return;
  if (num_active_++ == 0) served_->model_begins();
}

void FairShares::end(TenantId tenant) {
  served_->end(tenant, head_start());
  const auto ended = shares_.find(tenant);
  TROUPE_ASSERT(ended != shares_.end() && ended->second.active > 0);
  if (--ended->second.active > 0) return;
  if (--num_active_ == 0) served_->model_ends();
  std::erase_if(shares_, [](const auto& entry) {
    const Share& share = entry.second;
    return share.active + share.places + share.claims == 0;
  });
}

double FairShares::least_served() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [tenant, share] : shares_)
    if (share.active > 0) least = std::min(least, served(tenant));
  return least;
}

// A tenant without requests any more pays, too: cancelling before a step ends makes it no cheaper.
void FairShares::charge(TenantId tenant, double seconds) {
  served_->charge(tenant, seconds / model_weight_);
  if (on_charge_) on_charge_(tenant, seconds);
}

void FairShares::step_ended(double seconds) {
  TROUPE_ASSERT(seconds >= 0);
  const double twice = 2 * seconds / model_weight_;
  allowance_ += (twice - allowance_) / (allowance_ == 0 ? 1 : 8);
}

double FairShares::served(TenantId tenant) const { return served_->served(tenant); }

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
