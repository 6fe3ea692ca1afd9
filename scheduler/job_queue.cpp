#include "scheduler/job_queue.h"

#include <algorithm>
#include <cmath>

#include "config/assert.h"

namespace troupe::scheduler {

bool JobQueue::is_idle(const Unit& unit, double now) const {
  return unit.waiting.empty() && &unit != running_ && now >= unit.expected_until;
}

double JobQueue::allowed() const {
  double longest = 0;
  for (const auto& [number, unit] : units_) longest = std::max(longest, unit.usual_seconds / unit.weight);
  return kAllowedJobs * longest;
}

void JobQueue::push(const JobSource& source, Job job, double now) {
  TROUPE_ASSERT(source.weight > 0);
  const auto [it, is_new] = units_.try_emplace(source.unit);
  Unit& unit = it->second;
  if (is_new) {  // forgets idle units that would begin as new ones do
    std::erase_if(units_, [&](const auto& entry) {
      const Unit& other = entry.second;
      return &other != &unit && is_idle(other, now) && other.served <= clock_;
    });
  }
  unit.weight = source.weight;
  if (is_idle(unit, now)) unit.served = std::max(unit.served, clock_ - allowed());
  unit.waiting.push_back(std::move(job));
  ++size_;
}

JobQueue::Next JobQueue::next(double now) {
  TROUPE_ASSERT(!running_);
  contenders_.clear();
  Unit* measuring = nullptr;
  Next none;
  for (auto& [number, unit] : units_) {
    if (unit.has(JobKind::bookkeeping)) return take(unit);
    if (unit.has(JobKind::measuring) && !measuring) measuring = &unit;
    const bool is_expected = unit.is_expected(now);
    if (is_expected || unit.has(JobKind::serving)) contenders_.push_back(&unit);
    if (is_expected && size_ > 0) none.ask_at = std::min(none.ask_at, unit.expected_until);
  }
  if (measuring && (contenders_.empty() || passed_ >= kMaxPassed)) {
    passed_ = 0;
    return take(*measuring);
  }
  Unit* const chosen = choose();
  if (!chosen) return none;
  if (measuring) ++passed_;
  return take(*chosen);
}

// Of contenders_, which is left with those whose turn it is.
JobQueue::Unit* JobQueue::choose() {
  if (contenders_.size() > 1) {
    const double more = allowed();
    double least = std::numeric_limits<double>::infinity(), least_of_units = least;
    for (Unit* const unit : contenders_) {
      const std::vector<TenantId>& tenants = unit->waiting.empty() ? unit->tenants : unit->waiting.front().tenants;
      unit->key = tenants.empty() ? std::numeric_limits<double>::quiet_NaN() : least_served_(tenants);
      if (!tenants.empty()) least = std::min(least, unit->key);
    }
    const auto has_turn = [&](const Unit* unit) { return !(unit->key > least + more); };
    for (const Unit* const unit : contenders_)
      if (has_turn(unit)) least_of_units = std::min(least_of_units, unit->served);
    std::erase_if(contenders_, [&](Unit* unit) {
      if (has_turn(unit)) return unit->served > least_of_units + more;
      unit->served =
          std::max(unit->served, least_of_units);  // other units served its tenants meanwhile: it saves nothing up
      return true;
    });
  }
  Unit* chosen = nullptr;
  for (Unit* const unit : contenders_)
    if (!unit->waiting.empty() && (!chosen || unit->last_turn < chosen->last_turn)) chosen = unit;
  return chosen;
}

JobQueue::Next JobQueue::take(Unit& unit) {
  Next next{.job = std::move(unit.waiting.front())};
  unit.waiting.pop_front();
  --size_;
  running_ = &unit;
  running_kind_ = next.job->kind;
  if (running_kind_ == JobKind::serving) {
    unit.tenants = next.job->tenants;
    unit.last_turn = ++num_turns_;
    clock_ = std::max(clock_, unit.served);
  }
  return next;
}

void JobQueue::ended(double seconds, double now) {
  TROUPE_ASSERT(running_ && seconds >= 0);
  Unit& unit = *std::exchange(running_, nullptr);
  if (running_kind_ != JobKind::serving) return;
  unit.served += seconds / unit.weight;
  unit.usual_seconds += (seconds - unit.usual_seconds) / (unit.usual_seconds == 0 ? 1 : 8);
  unit.expected_until = now + kNextJobSeconds;
}

}  // namespace troupe::scheduler
