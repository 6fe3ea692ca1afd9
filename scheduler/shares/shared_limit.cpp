#include "scheduler/shares/shared_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

std::string and_more(std::uint64_t amount) { return amount > 1 ? fmt::format(", and {} more do not fit", amount) : ""; }

std::string and_kept(std::uint64_t left_free) {
  return left_free > 0 ? fmt::format(", and {} are kept for requests that were refused before", left_free) : "";
}

// Of what is held.
double part_of(std::uint64_t held, std::uint64_t part) {
  return held == 0 ? 0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(held));
}

}  // namespace

std::optional<Refusal> SharedLimit::check_share(const Tenant& tenant, std::uint64_t amount,
                                                std::uint64_t left_free) const {
  const std::uint64_t own = held_by(tenant.id);
  const std::uint64_t share = share_of(options_.limit, tenant.is_owner);
  if (own == 0 || (own <= share && amount + left_free <= share - own)) return std::nullopt;
  return Refusal{
      Outcome::quota,
      fmt::format("{} has {} {} here and may have {}, the share of one user in {} ({}){}{}; wait until some are done",
                  name_of(tenant), own, options_.what, share, options_.name, options_.limit, and_more(amount),
                  and_kept(left_free)),
      options_.name,
      share,
      {},
      part_of(own, amount)};
}

std::optional<Refusal> SharedLimit::try_take(const Tenant& tenant, std::uint64_t amount, std::uint64_t left_free) {
  auto over_share = check_share(tenant, amount, left_free);
  if (over_share && !tenant.is_owner) return over_share;
  const std::uint64_t kept = tenant.is_owner ? 0 : kept_for_owner_of(options_.limit);
  const std::uint64_t most = options_.limit - kept;
  const bool is_alone = held_ == 0 && options_.takes_any_alone;
  const bool never = amount > most && !options_.takes_any_alone;
  if (!is_alone && (held_ > most || amount + left_free > most - held_))
    return Refusal{Outcome::queue_full,
                   fmt::format("the server is at its limit of {} {} ({}{}){}{}; {}", most, options_.what, options_.name,
                               kept > 0 ? fmt::format("; {} more are kept for the owner", kept) : "", and_more(amount),
                               and_kept(left_free), never ? "ask for less" : "try again later"),
                   options_.name,
                   options_.limit,
                   never ? std::optional(std::numeric_limits<double>::infinity()) : std::nullopt,
                   part_of(held_, amount)};
  if (over_share) return over_share;
  take(tenant.id, amount);
  return std::nullopt;
}

void SharedLimit::take(TenantId tenant, std::uint64_t amount) {
  if (amount == 0) return;
  held_ += amount;
  held_by_[tenant] += amount;
}

void SharedLimit::give_back(TenantId tenant, std::uint64_t amount) {
  if (amount == 0) return;
  const auto found = held_by_.find(tenant);
  TROUPE_ASSERT(found != held_by_.end() && found->second >= amount);
  held_ -= amount;
  if ((found->second -= amount) == 0) held_by_.erase(found);
}

std::uint64_t SharedLimit::held_by(TenantId tenant) const {
  const auto found = held_by_.find(tenant);
  return found == held_by_.end() ? 0 : found->second;
}

}  // namespace troupe::scheduler
