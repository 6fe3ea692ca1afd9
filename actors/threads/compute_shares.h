// What tenants were served: by all models together; by one model, its batcher and its embed worker together; and what
// its batchers learned.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "scheduler/experience.h"
#include "scheduler/shares/fair_shares.h"

namespace troupe::actors {

// Of all models. Thread-safe: its lock is held for one call, of at most some hundred nanoseconds, and by what decides
// over all models, so that no model's event, step or pass waits for the event of another one.
class ServedAccounts final : public scheduler::ServedCounters {
 public:
  void begin(TenantId tenant, double weight, double head_start) override {
    const auto held = lock();
    time_->begin(tenant, weight, head_start);
  }
  void end(TenantId tenant, double head_start) override {
    const auto held = lock();
    time_->end(tenant, head_start);
  }
  void charge(TenantId tenant, double seconds) override {
    const auto held = lock();
    time_->charge(tenant, seconds);
  }
  [[nodiscard]] double served(TenantId tenant) const override {
    const auto held = lock();
    return time_->served(tenant);
  }
  void model_begins() override {
    const auto held = lock();
    time_->model_begins();
  }
  void model_ends() override {
    const auto held = lock();
    time_->model_ends();
  }
  [[nodiscard]] std::uint32_t num_busy_models() const override {
    const auto held = lock();
    return time_->num_busy_models();
  }
  // Of the tenant that was served least; infinite if there are none.
  [[nodiscard]] double least_served(std::span<const TenantId> tenants) const {
    const auto held = lock();
    double least = std::numeric_limits<double>::infinity();
    for (const TenantId tenant : tenants) least = std::min(least, time_->served(tenant));
    return least;
  }
  // For what decides over all models: time() is used with the lock held, and only shortly. Under it no other lock is
  // taken.
  [[nodiscard]] std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }
  [[nodiscard]] const std::shared_ptr<scheduler::ServedTime>& time() const { return time_; }

 private:
  mutable std::mutex mutex_;
  const std::shared_ptr<scheduler::ServedTime> time_ = std::make_shared<scheduler::ServedTime>();
};

// Steps and passes take turns by the time that their tenants were served: a tenant's texts wait while they are ahead of
// another tenant's streams. A pass waits only while a step runs, whose end brings the next decision. Thread-safe.
class ComputeShares {
 public:
  // accounts: its own: there is no other model.
  explicit ComputeShares(std::shared_ptr<ServedAccounts> accounts = std::make_shared<ServedAccounts>(),
                         double model_weight = 1)
      : shares_(std::move(accounts), model_weight) {}

  // The model's own. The batcher holds it while it handles an event, in which it uses shares() to charge and to decide.
  // It is not recursive, and a status query takes it: so no sink and no callback, which may ask for the status, is
  // called with the lock held.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  [[nodiscard]] scheduler::FairShares& shares() { return shares_; }
  // Used with the lock held.
  [[nodiscard]] const std::shared_ptr<scheduler::Experience>& experience() const { return experience_; }
  // Called by the batcher after each decision, with the lock held. Returns whether a waiting pass may start now; the
  // caller then sends the embed worker msg::TurnCame.
  [[nodiscard]] bool decided(bool step_running) {
    step_running_ = step_running;
    if (!waits_ || is_ahead(waiting_)) return false;
    waits_ = false;
    return true;
  }

  // For the embed worker. A request is counted from begin() to end().
  void begin(TenantId tenant, double weight = 1) {
    const auto held = lock();
    shares_.begin(tenant, weight);
  }
  void end(TenantId tenant) {
    const auto held = lock();
    shares_.end(tenant);
  }
  // Does not wait for an event of the batcher: for jobs, too.
  void charge(TenantId tenant, double seconds) const { shares_.charge_elsewhere(tenant, seconds); }
  // Whether the tenant's next pass has to wait, until decided() has returned true.
  [[nodiscard]] bool must_wait(TenantId tenant) {
    const auto held = lock();
    shares_.refresh();
    waits_ = is_ahead(tenant);
    waiting_ = tenant;
    return waits_;
  }

 private:
  bool is_ahead(TenantId tenant) const {
    return step_running_ && shares_.served(tenant) > shares_.least_served() + shares_.allowance();
  }

  std::mutex mutex_;
  scheduler::FairShares shares_;
  const std::shared_ptr<scheduler::Experience> experience_ = std::make_shared<scheduler::Experience>();
  bool step_running_ = false;
  bool waits_ = false;  // a pass does, of this tenant
  TenantId waiting_{};
};

}  // namespace troupe::actors
