#include "scheduler/shares/fair_queue.h"

#include <algorithm>
#include <iterator>

#include "config/assert.h"

namespace troupe::scheduler {

void FairQueue::push(RequestNumber number, const Demand& demand) {
  Line& line = lines_[demand.tenant];
  TROUPE_ASSERT(std::ranges::count(line, number, &Entry::number) == 0);
  const cache::Rank rank = rank_of(demand);
  line.insert(std::ranges::upper_bound(line, rank, {}, &Entry::rank), {number, demand, rank});
  ++size_;
}

bool FairQueue::remove(RequestNumber number) {
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    if (std::erase_if(line->second, [&](const Entry& entry) { return entry.number == number; }) == 0) continue;
    if (line->second.empty()) lines_.erase(line);
    --size_;
    return true;
  }
  return false;
}

bool FairQueue::may_run_more(const Line& line) const {
  const Demand& first = line.front().demand;
  if (shares_->places_and_claims(first.tenant) >= first.max_running()) return false;
  return !may_admit_ || may_admit_(first.tenant);
}

// Of the tenant that goes next; among equal ones the one whose first request is the oldest. Null if no tenant may run
// one more.
const FairQueue::Line* FairQueue::next_line() const {
  const Line* next = nullptr;
  const auto goes_before = [&](const Line& a, const Line& b) {
    const Demand &first_a = a.front().demand, &first_b = b.front().demand;
    if (shares_->goes_before(first_a.tenant, first_b.tenant)) return true;
    return !shares_->goes_before(first_b.tenant, first_a.tenant) && first_a.arrival < first_b.arrival;
  };
  for (const auto& [tenant, line] : lines_)
    if (may_run_more(line) && (!next || goes_before(line, *next))) next = &line;
  return next;
}

// The oldest of those of the best priority, at most kMaxOvertaken + 1, up to and including the first that may not be
// overtaken any more.
std::size_t FairQueue::num_candidates(const Line& line) {
  std::size_t count = 0;
  while (count < line.size() && count <= kMaxOvertaken && line[count].demand.priority == line.front().demand.priority) {
    if (line[count++].overtaken >= kMaxOvertaken) break;
  }
  return count;
}

// The first of equal ones: the oldest.
std::size_t FairQueue::choose(const Line& line) {
  const auto level_end = std::ranges::find_if(
      line, [&](std::int32_t priority) { return priority != line.front().demand.priority; },
      [](const Entry& entry) { return entry.demand.priority; });
  const auto earliest = std::ranges::min_element(line.begin(), level_end, {}, &Entry::due);
  const auto oldest_other = std::ranges::find(line.begin(), level_end, false, &Entry::has_deadline);
  const bool has_turn = oldest_other == level_end || line.deadlines_in_a_row < kMaxOvertaken;
  if (earliest->has_deadline() && has_turn) return static_cast<std::size_t>(earliest - line.begin());
  const auto end = std::max(line.begin() + static_cast<std::ptrdiff_t>(num_candidates(line)), oldest_other + 1);
  const auto prefix = [](const Entry& entry) { return entry.has_deadline() ? -1 : std::int64_t{entry.prediction}; };
  return static_cast<std::size_t>(std::ranges::max_element(line.begin(), end, {}, prefix) - line.begin());
}

void FairQueue::candidates(std::vector<RequestNumber>& out) const {
  out.clear();
  const Line* line = next_line();
  if (!line) return;
  std::transform(line->begin(), line->begin() + static_cast<std::ptrdiff_t>(num_candidates(*line)),
                 std::back_inserter(out), [](const Entry& entry) { return entry.number; });
}

void FairQueue::set_prediction(RequestNumber number, std::uint32_t tokens) {
  for (auto& [tenant, line] : lines_)
    for (Entry& entry : line)
      if (entry.number == number) entry.prediction = tokens;
}

std::optional<RequestNumber> FairQueue::peek() const {
  const Line* line = next_line();
  if (!line) return std::nullopt;
  return (*line)[choose(*line)].number;
}

// A request of this priority goes before the less urgent ones.
void FairQueue::pass(Line& line, std::int32_t priority) {
  bool any_promoted = false;
  for (Entry& entry : line) {
    if (entry.demand.priority <= priority || ++entry.passed < kMaxPassed) continue;
    entry.demand.priority = priority;
    entry.rank = rank_of(entry.demand);
    any_promoted = true;
  }
  if (any_promoted) std::ranges::sort(line, {}, &Entry::rank);
}

std::optional<RequestNumber> FairQueue::pick(std::int32_t* priority) {
  const Line* next = next_line();
  if (!next) return std::nullopt;
  Line& line = lines_.at(next->front().demand.tenant);
  const std::size_t chosen = choose(line);
  const RequestNumber number = line[chosen].number;
  const TenantId tenant = line[chosen].demand.tenant;
  const std::int32_t picked_priority = line[chosen].demand.priority;
  if (priority) *priority = picked_priority;
  if (line[chosen].has_deadline()) {
    ++line.deadlines_in_a_row;
  } else {
    line.deadlines_in_a_row = 0;
    for (std::size_t i = 0; i < chosen; ++i) ++line[i].overtaken;
  }
  line.erase(line.begin() + static_cast<std::ptrdiff_t>(chosen));
  pass(line, picked_priority);
  if (line.empty()) lines_.erase(tenant);
  --size_;
  return number;
}

}  // namespace troupe::scheduler
