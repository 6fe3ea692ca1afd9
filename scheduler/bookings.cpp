#include "scheduler/bookings.h"

#include <algorithm>
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
  if (bookings_.size() == kMax) return;
  request.is_running = false;
  if (request.demand.due_seconds) *request.demand.due_seconds += wait;
  bookings_.push_back({.content = content,
                       .request = std::move(request),
                       .due = now + wait + deadline,
                       .until = now + 1.5 * wait + kSlackSeconds});
}

bool Bookings::take(std::uint64_t content, double now) {
  forget_lapsed(now);
  const auto found = std::ranges::find(bookings_, content, &Booking::content);
  if (found == bookings_.end()) return false;
  bookings_.erase(found);
  learn(true);
  return true;
}

void Bookings::append(std::vector<ForecastRequest>& requests, double first_margin, double last_margin, double now) {
  forget_lapsed(now);
  if (came_back_ < kLeastPartThatComes) return;
  for (const Booking& booking : bookings_) {
    ForecastRequest& added = requests.emplace_back(booking.request);
    added.promised = (booking.due - now) / (added.promised_last ? last_margin : first_margin);
  }
}

void Bookings::forget_lapsed(double now) {
  const auto kept = std::remove_if(bookings_.begin(), bookings_.end(), [&](const Booking& booking) {
    if (now <= booking.until) return false;
    learn(false);
    return true;
  });
  bookings_.erase(kept, bookings_.end());
}

void Bookings::learn(bool came_back) { came_back_ += ((came_back ? 1.0 : 0.0) - came_back_) * kDecay; }

}  // namespace troupe::scheduler
