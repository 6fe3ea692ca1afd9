// Requests that were refused for their deadlines and told when to come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "scheduler/deadline_forecast.h"
#include "scheduler/promises.h"

namespace troupe::scheduler {

// Until it comes back, a booked request is a part of every forecast, as one that waits and was promised its deadline:
// what arrives meanwhile is admitted only as far as the booked ones will still be in time, and is itself told to come
// after them. A request is known by its content, a number that is equal for a request and its retry. A tenant's
// bookings are not counted while few of them are seen to come back: capacity is not kept free for clients that ask
// once.
//
// Times are seconds of one clock. Not thread-safe. O(bookings); at most kMax are kept.
class Bookings {
 public:
  static constexpr std::size_t kMax = 512;
  static constexpr std::size_t kMaxTenants = 1024;  // one more, and which of them come back is learned anew
  // A booking is kept for half of the wait longer, which is what clients add at random, and this.
  static constexpr double kSlackSeconds = 2;

  // Books the request and returns how many seconds after `now` it is to come back: at least `wait`, and one after
  // another of its tenant's, each of which takes `work` seconds, as far as they come back. It is late `deadline`
  // seconds after that. While kMax are kept it replaces the last of the tenant that has most of them; none if that is
  // its own.
  double add(std::uint64_t content, ForecastRequest request, double wait, double work, double deadline, double now);
  // A request with this content has arrived: whether it was told to come back; its booking ends. One that comes early
  // has nothing to wait for.
  bool take(std::uint64_t content, double now);
  // What is booked, with the margins of its tenants. The reference is valid until the next call.
  [[nodiscard]] const std::vector<ForecastRequest>& booked(const PromiseMargins& first, const PromiseMargins& last,
                                                           double now);

  [[nodiscard]] std::size_t size() const { return bookings_.size(); }

 private:
  struct Booking {
    std::uint64_t content = 0;
    ForecastRequest request;
    double back = 0, wait = 0, deadline = 0;
    double until = 0;
  };
  void forget_lapsed(double now);
  bool make_room(TenantId tenant);
  void learn(TenantId tenant, bool came_back);
  struct Tenant;
  Tenant& tenant_of(TenantId tenant);

  struct Tenant {
    std::uint32_t num_ended = 0;  // bookings, counted up to a number
    double came_back = 0;         // decayed part of them
    [[nodiscard]] double part_that_comes() const { return num_ended > 0 ? came_back : 1; }
    double reserved_until = 0;  // when the last one will be done
  };
  std::deque<Booking> bookings_;  // in the order of add()
  std::unordered_map<TenantId, Tenant> tenants_;
  std::vector<ForecastRequest> booked_;
};

}  // namespace troupe::scheduler
