// What each tenant has been served, in seconds of computing: which tenant is next.
//
// These are the virtual token counters of Sheng et al., "Fairness in Serving Large Language Models" (arXiv 2401.00588),
// with measured seconds in place of tokens: each step's time is charged to the tenants whose rows were in it, and the
// active tenant with the lowest counter goes first. A tenant that becomes active again begins no lower than
// head_start() below the lowest counter of the active ones: what it left unused is not saved up beyond that, which lets
// the first step of a newcomer be one of its own rather than the crowd's. With one active tenant the counters decide
// nothing.
//
// A tenant's counter grows by its seconds divided by its weight, so busy tenants are served in proportion to their
// weights. All seconds below that are compared are of counters: those of a tenant of weight 1.
//
// Each model has shares of its own: which tenants are active in it and have places. The counters are those of all
// models (ServedCounters); what a model computes counts divided by the model's weight. A counter that was read stays as
// it is until refresh(), but for what this model does to it: while a model decides, others charge.
//
// Plain logic: no clock, and no tokens either. FairQueue picks the next request by it, StepPlanner whose rows a step
// computes and which sequence gives up its place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "cache/ids.h"
#include "scheduler/shares/served_time.h"

namespace troupe::scheduler {

// A tenant that was served this much more than one that waits for a place in the batch gives up a place, in seconds.
inline constexpr double kPlaceTurnSeconds = 0.5;

// Not thread-safe, but for charge_elsewhere(). O(1), but for what its comment says.
class FairShares {
 public:
  // served: of all models; its own: there is no other model. model_weight: above 0 (asserted).
  explicit FairShares(std::shared_ptr<ServedCounters> served = std::make_shared<ServedTime>(), double model_weight = 1);

  // From here on the counters are what they are now. Called before each event is handled.
  void refresh();

  // One of the tenant's requests begins or ceases to want computing: it is queued or in the batch, not out of credit.
  // The caller calls end() once for each begin() (asserted). The weight (above 0, asserted) holds until the next
  // begin() gives another. O(active tenants).
  void begin(TenantId tenant, double weight = 1);
  void end(TenantId tenant);

  // `count` is called by each charge(), with its arguments: a tenant's counter is forgotten here when it is idle, and
  // the tenant's metric is the sum of all its seconds. Set before the first charge().
  void on_charge(std::function<void(TenantId, double)> count) { on_charge_ = std::move(count); }
  // The tenant had `seconds` (>= 0) of a step to itself.
  void charge(TenantId tenant, double seconds);
  // The same while another thread uses the rest; the counters are thread-safe then, and so is what on_charge() was
  // given. Decisions see it from the next refresh() on.
  void charge_elsewhere(TenantId tenant, double seconds) const;
  // A step took `seconds`. Sets allowance().
  void step_ended(double seconds);

  // The tenant's counter; 0 for a tenant that is not known.
  [[nodiscard]] double served(TenantId tenant) const;
  // Of the tenant active in this model that was served least; infinite if there is none. O(active tenants).
  [[nodiscard]] double least_served() const;
  // Rows of a tenant that was served at most this much more than another join its step: about two steps. Without it
  // tenants of equal counters would be computed in turns instead of together.
  [[nodiscard]] double allowance() const { return allowance_; }
  // How many models have active tenants.
  [[nodiscard]] std::uint32_t num_busy_models() const;
  // About three steps: one more than allowance(). It is not given again before it is used up: a counter only grows.
  [[nodiscard]] double head_start() const { return 1.5 * allowance_; }

  // Places in the batch, counted by StepPlanner whenever they change.
  void clear_places();
  // Returns how many places the tenant has without this one.
  std::uint32_t take_place(TenantId tenant) { return shares_[tenant].places++; }
  [[nodiscard]] std::uint32_t places(TenantId tenant) const;
  // A request that was taken from the queue, but waits for blocks or for a leader, has no place yet. It has a claim
  // until it gets one.
  void claim_place(TenantId tenant) { ++shares_[tenant].claims; }
  void withdraw_claim(TenantId tenant);
  [[nodiscard]] std::uint32_t places_and_claims(TenantId tenant) const;

  // Whether the next free place is for `a` rather than `b`: fewer places and claims, then less served. False for both
  // if equal.
  [[nodiscard]] bool goes_before(TenantId a, TenantId b) const;

 private:
  struct Share {
    std::uint32_t active = 0;  // requests
    std::uint32_t places = 0;
    std::uint32_t claims = 0;
  };
  std::shared_ptr<ServedCounters> served_;
  double model_weight_;
  // Of served_, since refresh().
  mutable std::unordered_map<TenantId, double> seen_;
  mutable std::optional<std::uint32_t> seen_busy_models_;
  std::unordered_map<TenantId, Share> shares_;  // the active tenants, and those that had places meanwhile
  std::uint32_t num_active_ = 0;                // tenants
  double allowance_ = 0;
  std::function<void(TenantId, double)> on_charge_;
};

}  // namespace troupe::scheduler
