#include "scheduler/shares/fair_shares.h"

#include <algorithm>
#include <limits>

#include "config/assert.h"

namespace troupe::scheduler {

FairShares::FairShares(std::shared_ptr<ServedCounters> served, double model_weight)
    : served_(std::move(served)), model_weight_(model_weight) {
  TROUPE_ASSERT(model_weight > 0);
}

void FairShares::refresh() {
  seen_.clear();
  seen_busy_models_.reset();
}

void FairShares::begin(TenantId tenant, double weight) {
  served_->begin(tenant, weight, head_start());
  seen_.erase(tenant);
  if (shares_[tenant].active++ > 0) return;
  if (num_active_++ > 0) return;
  served_->model_begins();
  seen_busy_models_.reset();
}

void FairShares::end(TenantId tenant) {
  served_->end(tenant, head_start());
  seen_.erase(tenant);
  const auto ended = shares_.find(tenant);
  TROUPE_ASSERT(ended != shares_.end() && ended->second.active > 0);
  if (--ended->second.active > 0) return;
  if (--num_active_ == 0) {
    served_->model_ends();
    seen_busy_models_.reset();
  }
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
  charge_elsewhere(tenant, seconds);
  seen_.erase(tenant);
}

void FairShares::charge_elsewhere(TenantId tenant, double seconds) const {
  served_->charge(tenant, seconds / model_weight_);
  if (on_charge_) on_charge_(tenant, seconds);
}

void FairShares::step_ended(double seconds) {
  TROUPE_ASSERT(seconds >= 0);
  const double twice = 2 * seconds / model_weight_;
  allowance_ += (twice - allowance_) / (allowance_ == 0 ? 1 : 8);
}

double FairShares::served(TenantId tenant) const {
  const auto seen = seen_.find(tenant);
  return seen != seen_.end() ? seen->second : seen_.emplace(tenant, served_->served(tenant)).first->second;
}

std::uint32_t FairShares::num_busy_models() const {
  if (!seen_busy_models_) seen_busy_models_ = served_->num_busy_models();
  return *seen_busy_models_;
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
