#include "scheduler/fair_queue.h"

#include <algorithm>

#include "config/assert.h"

namespace troupe::scheduler {

void FairQueue::push(RequestNumber number, const Demand& demand) {
  TROUPE_ASSERT(std::ranges::count(entries_, number, &Entry::number) == 0);
  const cache::Rank rank = rank_of(demand);
  entries_.insert(std::ranges::upper_bound(entries_, rank, {}, &Entry::rank), {number, demand, rank});
}

bool FairQueue::remove(RequestNumber number) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.number == number; }) > 0;
}

// The oldest of those that none outranks, at most kMaxOvertaken + 1, up to and including the first that may not be
// overtaken any more.
std::size_t FairQueue::num_candidates() const {
  std::size_t count = 0;
  while (count < entries_.size() && count <= kMaxOvertaken &&
         !outranks(entries_.front().demand, entries_[count].demand)) {
    if (entries_[count++].overtaken >= kMaxOvertaken) break;
  }
  return count;
}

void FairQueue::candidates(std::vector<RequestNumber>& out) const {
  out.clear();
  for (std::size_t i = 0; i < num_candidates(); ++i) out.push_back(entries_[i].number);
}

void FairQueue::set_prediction(RequestNumber number, std::uint32_t tokens) {
  for (Entry& entry : entries_)
    if (entry.number == number) entry.prediction = tokens;
}

FairQueue::Position FairQueue::choose() const {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(num_candidates());
  // The first of equal ones: the oldest.
  return std::ranges::max_element(entries_.begin(), end, {}, &Entry::prediction);
}

std::optional<RequestNumber> FairQueue::peek() const {
  if (empty()) return std::nullopt;
  return choose()->number;
}

std::optional<RequestNumber> FairQueue::pick() {
  if (empty()) return std::nullopt;
  const Position chosen = choose();
  const RequestNumber number = chosen->number;
  for (auto entry = entries_.begin(); entry != chosen; ++entry) ++entry->overtaken;
  entries_.erase(chosen);
  return number;
}

}  // namespace troupe::scheduler
