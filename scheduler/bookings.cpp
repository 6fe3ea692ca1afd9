#include "scheduler/bookings.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

constexpr std::uint32_t kMemory = 32;  // bookings over which the part that comes back is a mean
constexpr double kLongestQueueSeconds = 600;
constexpr double kLeastPartThatComes = 0.3;  // below it bookings are not counted

}  // namespace

double Bookings::add(std::uint64_t content, ForecastRequest request, double wait, double work, double deadline,
                     double now) {
  TROUPE_ASSERT(wait >= 0 && work >= 0 && deadline >= 0);
  forget_lapsed(now);
  Tenant& tenant = tenant_of(request.demand.tenant);
  wait = std::min(std::max(wait, tenant.reserved_until - now), std::max(wait, kLongestQueueSeconds));
  tenant.reserved_until = now + wait + work * tenant.part_that_comes();
  if (bookings_.size() == kMax && !make_room(request.demand.tenant)) return wait;
  request.is_running = false;
  if (request.demand.due_seconds) *request.demand.due_seconds += wait;
  bookings_.push_back({.content = content,
                       .request = std::move(request),
                       .back = now + wait,
                       .wait = wait,
                       .deadline = deadline,
                       .until = now + 1.5 * wait + kSlackSeconds});
  return wait;
}

bool Bookings::take(std::uint64_t content, double now) {
  forget_lapsed(now);
  const auto found = std::ranges::find(bookings_, content, &Booking::content);
  if (found == bookings_.end()) return false;
  learn(found->request.demand.tenant, true);
  bookings_.erase(found);
  return true;
}

const std::vector<ForecastRequest>& Bookings::booked(const PromiseMargins& first, const PromiseMargins& last,
                                                     double now) {
  forget_lapsed(now);
  booked_.clear();
  for (const Booking& booking : bookings_) {
    const TenantId tenant = booking.request.demand.tenant;
    if (tenant_of(tenant).part_that_comes() < kLeastPartThatComes) continue;
    ForecastRequest& added = booked_.emplace_back(booking.request);
    const double margin = (added.promised_last ? last : first).factor(tenant, now);
    // Clients add up to a half of the wait at random.
    added.from_seconds = std::max(booking.back + 0.25 * booking.wait - now, 0.0);
    added.promised = added.from_seconds + booking.deadline / margin;
  }
  return booked_;
}

bool Bookings::make_room(TenantId tenant) {
  std::unordered_map<TenantId, std::size_t> counts;
  for (const Booking& booking : bookings_) ++counts[booking.request.demand.tenant];
  const TenantId most = std::ranges::max_element(counts, {}, &decltype(counts)::value_type::second)->first;
  if (counts[tenant] >= counts[most]) return false;
  const auto last = std::find_if(bookings_.rbegin(), bookings_.rend(),
                                 [&](const Booking& booking) { return booking.request.demand.tenant == most; });
  bookings_.erase(std::next(last).base());
  return true;
}

void Bookings::forget_lapsed(double now) {
  const auto kept = std::remove_if(bookings_.begin(), bookings_.end(), [&](const Booking& booking) {
    if (now <= booking.until) return false;
    learn(booking.request.demand.tenant, false);
    return true;
  });
  bookings_.erase(kept, bookings_.end());
}

void Bookings::learn(TenantId id, bool came_back) {
  Tenant& tenant = tenant_of(id);
  tenant.num_ended = std::min(tenant.num_ended + 1, kMemory);
  tenant.came_back += ((came_back ? 1.0 : 0.0) - tenant.came_back) / tenant.num_ended;
}

Bookings::Tenant& Bookings::tenant_of(TenantId tenant) {
  if (tenants_.size() >= kMaxTenants && !tenants_.contains(tenant)) tenants_.clear();
  return tenants_[tenant];
}

}  // namespace troupe::scheduler
