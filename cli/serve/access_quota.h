// Which lines about requests are written: a client that is refused again and again must neither fill a disk nor hide
// what others did. Plain: time is an argument. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "scheduler/shares/tenant.h"
#include "scheduler/shares/token_bucket.h"

namespace troupe::cli {

class AccessQuota {
 public:
  // So many seconds' lines may come at once.
  static constexpr double kBurstSeconds = 5;
  // So many tenants are remembered; for one more all are forgotten.
  static constexpr std::size_t kMaxTenants = 4096;

  // per_second: lines, at least 1; of refused requests and of others each.
  explicit AccessQuota(std::uint32_t per_second) : per_second_(per_second), all_(per_second) {}

  // Takes a line at `now`, in seconds of any clock. Returns how many of the tenant's were left out since its last one;
  // nullopt: this one is left out. O(1).
  [[nodiscard]] std::optional<std::uint64_t> take(const scheduler::Tenant& tenant, bool is_refused, double now) {
    auto found = tenants_.find(tenant.id);
    if (found == tenants_.end()) {
      if (tenants_.size() >= kMaxTenants) tenants_.clear();
      const double share = tenant.is_owner ? 1 : kGuestShare;
      found = tenants_.try_emplace(tenant.id, std::max(1.0, per_second_ * share)).first;
    }
    Buckets& own = found->second;
    auto& mine = is_refused ? own.refused : own.others;
    auto& shared = is_refused ? all_.refused : all_.others;
    if (mine.wait_for(1, now) > 0 || shared.wait_for(1, now) > 0) {
      ++own.left_out;
      ++untold_;
      return std::nullopt;
    }
    mine.take(1, now);
    shared.take(1, now);
    untold_ -= own.left_out;
    return std::exchange(own.left_out, 0);
  }

  // Lines that were left out, and whose number take() has not returned.
  [[nodiscard]] std::uint64_t num_untold() const { return untold_; }

 private:
  static constexpr double kGuestShare = 0.25;

  struct Buckets {
    explicit Buckets(double rate) : refused(kBurstSeconds * rate, rate), others(refused) {}
    scheduler::TokenBucket refused, others;
    std::uint64_t left_out = 0;
  };

  const double per_second_;
  Buckets all_;
  std::unordered_map<TenantId, Buckets> tenants_;
  std::uint64_t untold_ = 0;
};

}  // namespace troupe::cli
