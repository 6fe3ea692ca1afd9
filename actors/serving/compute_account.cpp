#include "actors/serving/compute_account.h"

#include <algorithm>

#include "config/assert.h"

namespace troupe::actors {

void StreamWork::began(std::uint32_t num_blocks, double parked_seconds, TimePoint now) {
  if (!first_step_) {
    first_step_ = now;
    parked_before_ = parked_seconds;
  }
  if (preempted_since_) preempted_seconds_ += seconds_between(*preempted_since_, now);
  preempted_since_.reset();
  has_place_ = true;
  num_blocks_ = num_blocks;
  held_since_ = now;
}

void StreamWork::charge(const Charge& charge, double step_seconds, TimePoint now) {
  compute_seconds_ += charge.seconds;
  step_seconds_ += step_seconds;
  computed_tokens_ += charge.num_tokens;
  drafted_tokens_ += charge.num_drafted;
  accepted_tokens_ += charge.num_accepted;
  num_blocks_ = charge.num_blocks;
  block_seconds_ += held(now);
  held_since_ = now;
}

void StreamWork::preempted(bool parked, TimePoint now) {
  block_seconds_ += held(now);
  num_blocks_ = 0;
  has_place_ = false;
  if (!parked) preempted_since_ = now;
}

void StreamWork::unparked(TimePoint now) {
  if (first_step_ && !has_place_) preempted_since_ = now;
}

void StreamWork::fill(Usage& usage, double parked_seconds, std::uint32_t num_threads, TimePoint now) const {
  usage.computed_tokens = computed_tokens_;
  usage.drafted_tokens = drafted_tokens_;
  usage.accepted_tokens = accepted_tokens_;
  usage.compute_seconds = compute_seconds_;
  usage.cpu_seconds = compute_seconds_ * num_threads;
  usage.block_seconds = block_seconds_ + held(now);
  usage.parked_seconds = parked_seconds;
  if (!first_step_) return;
  usage.preempted_seconds = preempted_seconds_ + (preempted_since_ ? seconds_between(*preempted_since_, now) : 0);
  const double accounted = step_seconds_ + usage.preempted_seconds + (parked_seconds - parked_before_);
  usage.stalled_seconds = std::max(0.0, seconds_between(*first_step_, now) - accounted);
}

ChargedTime::Mark ChargedTime::begin(TenantId tenant) {
  Sum& sum = tenants_[tenant];
  ++sum.live;
  return {.tenant = sum.seconds, .all = all_};
}

void ChargedTime::charge(TenantId tenant, double seconds) {
  all_ += seconds;
  if (const auto found = tenants_.find(tenant); found != tenants_.end()) found->second.seconds += seconds;
}

double ChargedTime::end(TenantId tenant, const Mark& mark) {
  const auto found = tenants_.find(tenant);
  TROUPE_ASSERT(found != tenants_.end() && found->second.live > 0);
  const double own = found->second.seconds - mark.tenant;
  const double all = all_ - mark.all;
  if (--found->second.live == 0) tenants_.erase(found);
  return all > 0 ? std::clamp(own / all, 0.0, 1.0) : 0;
}

}  // namespace troupe::actors
