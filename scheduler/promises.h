// Whether a request is promised that it meets its deadline.
//
// It is if it is predicted to be in time, with a margin, and if nothing that was promised before is late because of it.
// Each tenant is sure of its share of the server's time, by weight. While time is free, other tenants are promised more
// than their shares; a request of a tenant below its share is promised even if it makes those promises late. So many
// requests with short deadlines gain nothing against other tenants.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/ids.h"
#include "scheduler/deadline_forecast.h"
#include "scheduler/shares/recent_use.h"

namespace troupe::scheduler {

// What is predicted to take p seconds is promised within p * factor(): what arrives later makes it longer than
// predicted. The factor is learned from promises: each that was missed raises it, each that was kept lowers it a
// little, so that in the long run kMissed of them are missed. Not thread-safe.
class PromiseMargin {
 public:
  static constexpr double kMissed = 0.03;
  static constexpr double kFirst = 1.35, kRecovered = 2;

  [[nodiscard]] double factor() const { return factor_; }
  void learn(bool was_kept);
  // A factor above kRecovered falls back to it in the course of minutes: while it is so high that nothing is promised,
  // nothing else would lower it.
  void recover(double seconds);

 private:
  double factor_ = kFirst;
};

// Of each tenant by itself: one that was promised more than its share misses a part of it when others come back, and is
// promised less from then on. Times are seconds of one clock. Not thread-safe. O(1).
class PromiseMargins {
 public:
  static constexpr std::size_t kMaxTenants = 1024;  // one more, and those of all tenants are learned anew

  [[nodiscard]] double factor(TenantId tenant, double now) const;
  void learn(TenantId tenant, bool was_kept, double now);

 private:
  struct Learned {
    PromiseMargin margin{};
    double at = 0;
  };
  std::unordered_map<TenantId, Learned> margins_;
};

struct PromiseAnswer {
  Forecast expected;
  double wait = 0;  // seconds until another try can be promised, if nothing else comes; 0: it is promised
  double work = 0;  // seconds that it takes of its tenant's share of the time
};

// Appends to `requests` what tenants are expected to ask for that have none among them, nor are that of `next`: one
// request each that does not end, with a weight such that it takes the part of the time that the tenant used of late,
// and at most its share.
void append_expected(std::vector<ForecastRequest>& requests, const RecentUse& use, const ForecastRequest& next,
                     double now);

// next: `promised` says what it asks for (asserted), as of the others what they have. requests: those that run or wait.
// booked: those that were refused, and will come back (scheduler/bookings.h): this one has to leave them room, unless
// it came back itself. costs->has_learned() (asserted). As forecast(), at most six times, and once for each tenant.
[[nodiscard]] PromiseAnswer decide_promise(const ForecastServer& server, std::span<const ForecastRequest> requests,
                                           std::span<const ForecastRequest> booked, const ForecastRequest& next,
                                           bool came_back = false);

}  // namespace troupe::scheduler
