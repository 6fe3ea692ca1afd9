#include "scheduler/bookings.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

constexpr double kDecay = 1.0 / 32;          // of the part that comes back, with each booking that ends
constexpr double kLeastPartThatComes = 0.3;  // below it bookings are not counted

}  // namespace

void Bookings::add(std::uint64_t content, ForecastRequest request, double wait, double deadline, double now) {
  TROUPE_ASSERT(wait >= 0 && deadline >= 0);
  forget_lapsed(now);
  if (bookings_.size() == kMax && !make_room(request.demand.tenant)) return;
  request.is_running = false;
  if (request.demand.due_seconds) *request.demand.due_seconds += wait;
  bookings_.push_back({.content = content,
                       .request = std::move(request),
                       .back = now + wait,
                       .deadline = deadline,
                       .until = now + 1.5 * wait + kSlackSeconds});
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
    const auto came_back = came_back_.find(tenant);
    if (came_back == came_back_.end() || came_back->second < kLeastPartThatComes) continue;
    ForecastRequest& added = booked_.emplace_back(booking.request);
    const double margin = (added.promised_last ? last : first).factor(tenant, now);
    added.promised = std::max(booking.back - now, 0.0) + booking.deadline / margin;
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

void Bookings::learn(TenantId tenant, bool came_back) {
  if (came_back_.size() >= kMaxTenants && !came_back_.contains(tenant)) came_back_.clear();
  double& part = came_back_[tenant];
  part += ((came_back ? 1.0 : 0.0) - part) * kDecay;
}

}  // namespace troupe::scheduler
