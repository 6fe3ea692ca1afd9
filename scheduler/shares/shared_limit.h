// A limit that all users share, with a maximum share per user.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "scheduler/shares/admission.h"
#include "scheduler/shares/tenant.h"

namespace troupe::scheduler {

// Of any shared limit: a guest may hold a quarter (at least 1), the owner all but a quarter. Fixed parts, because the
// number of users is not known in advance; with one active user the rest stays free for the next one.
[[nodiscard]] constexpr std::uint64_t share_of(std::uint64_t limit, bool is_owner) {
  if (is_owner) return limit - limit / 4;
  return limit < 4 ? (limit > 0 ? 1 : 0) : limit / 4;
}
// The part of a limit that all guests together cannot take: a sixteenth, at least 1; nothing of a limit of 1.
[[nodiscard]] constexpr std::uint64_t kept_for_owner_of(std::uint64_t limit) {
  if (limit < 2) return 0;
  return limit < 16 ? 1 : limit / 16;
}

struct SharedLimitOptions {
  std::string name;  // in the configuration: "max_queued_texts"
  std::string what;  // what is counted: "queued texts"
  std::uint64_t limit = 0;
  // An amount larger than the whole limit is taken while nothing else is held.
  bool takes_any_alone = false;
};

// Not thread-safe. O(1).
class SharedLimit {
 public:
  explicit SharedLimit(SharedLimitOptions options) : options_(std::move(options)) {}

  // Adds `amount` to what this tenant holds, or returns the refusal: Outcome::queue_full if the limit is reached,
  // Outcome::quota if only the tenant's share is, and always for a guest beyond its share, so that it learns nothing of
  // what others hold; with to_free, and with an infinite retry_after for an amount that can never fit. No refusal has
  // the sum over tenants. A tenant that holds nothing may exceed the share with one amount that fits into the limit.
  // left_free: so much of the share has to be left for others of the tenant's.
  [[nodiscard]] std::optional<Refusal> try_take(const Tenant& tenant, std::uint64_t amount = 1,
                                                std::uint64_t left_free = 0);
  // Checks the tenant's share only, not the limit. Takes nothing.
  [[nodiscard]] std::optional<Refusal> check_share(const Tenant& tenant, std::uint64_t amount = 1,
                                                   std::uint64_t left_free = 0) const;
  // Adds an amount that cannot be refused any more; it may exceed the share and the limit.
  void take(TenantId tenant, std::uint64_t amount = 1);
  // Subtracts an amount, at most what the tenant holds (asserted).
  void give_back(TenantId tenant, std::uint64_t amount = 1);

  [[nodiscard]] std::uint64_t limit() const { return options_.limit; }
  [[nodiscard]] std::uint64_t held() const { return held_; }
  [[nodiscard]] std::uint64_t held_by(TenantId tenant) const;

 private:
  SharedLimitOptions options_;
  std::uint64_t held_ = 0;
  std::unordered_map<TenantId, std::uint64_t> held_by_;  // only tenants that hold more than 0
};

}  // namespace troupe::scheduler
