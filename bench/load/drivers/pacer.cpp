#include "bench/load/drivers/pacer.h"

#include <algorithm>

#include "config/assert.h"

namespace troupe::load {

RequestRecord begin_record(const Due& due, const PlannedRequest& request) {
  RequestRecord record;
  record.index = due.index;
  record.client = due.client;
  record.prefix = request.prefix;
  record.intended_s = due.intended_s;
  record.fault = request.fault;
  return record;
}

Pacer::Pacer(const Plan& plan) : plan_(plan), bounded_(plan.spec().pace.clients > 0) {
  for (std::uint32_t client = 0; client < plan.spec().pace.clients; ++client)
    free_.push({plan.open_loop() ? 0 : plan.client_start_s(client), client});
}

std::optional<double> Pacer::next_at() const {
  if (nothing_left() || time_is_up() || (bounded_ && free_.empty())) return std::nullopt;
  const double free_s = bounded_ ? free_.top().at_s : 0;
  return plan_.open_loop() ? std::max(free_s, plan_.arrival_s(next_index_)) : free_s;
}

std::optional<Due> Pacer::next(double now_s) {
  const auto at_s = next_at();
  if (!at_s || *at_s > now_s) return std::nullopt;
  Due due{.index = next_index_, .client = 0, .intended_s = plan_.open_loop() ? plan_.arrival_s(next_index_) : *at_s};
  if (bounded_) {
    due.client = free_.top().client;
    free_.pop();
  }
  ++next_index_;
  ++in_flight_;
  return due;
}

void Pacer::ended(std::uint32_t client, double now_s) {
  TROUPE_ASSERT(in_flight_ > 0);
  --in_flight_;
  if (!bounded_) return;
  free_.push({plan_.open_loop() ? now_s : now_s + plan_.spec().pace.think_s, client});
}

bool Pacer::nothing_left() const { return stopped_ || (plan_.size() && next_index_ >= *plan_.size()); }

bool Pacer::time_is_up() const {
  const auto& duration_s = plan_.spec().pace.duration_s;
  return !plan_.open_loop() && duration_s && !free_.empty() && free_.top().at_s > *duration_s;
}

// A busy client may become free before the end while the free ones do not: in a ramp those start later.
bool Pacer::exhausted() const { return nothing_left() || (time_is_up() && in_flight_ == 0); }

}  // namespace troupe::load
