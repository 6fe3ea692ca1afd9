#include "scheduler/fair_queue.h"

#include <algorithm>

#include "config/assert.h"

namespace troupe::scheduler {

void FairQueue::push(RequestNumber number, const Demand& demand) {
  TROUPE_ASSERT(std::none_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.number == number; }));
  const cache::Rank rank = rank_of(demand);
  const auto place = std::upper_bound(entries_.begin(), entries_.end(), rank,
                                      [](const cache::Rank& mine, const Entry& entry) { return mine < entry.rank; });
  entries_.insert(place, {number, demand, rank});
}

void FairQueue::erase(std::size_t index) { entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index)); }

bool FairQueue::remove(RequestNumber number) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].number != number) continue;
    erase(i);
    return true;
  }
  return false;
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

std::size_t FairQueue::choose() const {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(num_candidates());
  const auto best = std::max_element(entries_.begin(), end, [](const Entry& a, const Entry& b) {
    return a.prediction < b.prediction;  // the first of equal ones: the oldest
  });
  return static_cast<std::size_t>(best - entries_.begin());
}

std::optional<RequestNumber> FairQueue::peek() const {
  if (empty()) return std::nullopt;
  return entries_[choose()].number;
}

std::optional<RequestNumber> FairQueue::pick() {
  if (empty()) return std::nullopt;
  const std::size_t chosen = choose();
  const RequestNumber number = entries_[chosen].number;
  for (std::size_t i = 0; i < chosen; ++i) ++entries_[i].overtaken;
  erase(chosen);
  return number;
}

}  // namespace troupe::scheduler
