#include "scheduler/request_queue.h"

#include <algorithm>

#include "config/assert.h"

namespace troupe::scheduler {
void RequestQueue::push(RequestNumber number, const Demand& demand) {
  TROUPE_ASSERT(std::none_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.number == number; }));
  const auto place =
      std::upper_bound(entries_.begin(), entries_.end(), demand.rank,
                       [](const cache::Rank& rank, const Entry& entry) { return rank < entry.demand.rank; });
  entries_.insert(place, {number, demand});
}

void RequestQueue::erase(std::size_t index) { entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index)); }

bool RequestQueue::remove(RequestNumber number) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].number != number) continue;
    erase(i);
    return true;
  }
  return false;
}

// The oldest of the best priority, at most kMaxOvertaken + 1, up to and including the first that may not be overtaken
// any more.
std::size_t RequestQueue::num_candidates() const {
  std::size_t count = 0;
  while (count < entries_.size() && count <= kMaxOvertaken &&
         entries_[count].demand.rank.priority == entries_.front().demand.rank.priority) {
    if (entries_[count++].overtaken >= kMaxOvertaken) break;
  }
  return count;
}

void RequestQueue::candidates(std::vector<RequestNumber>& out) const {
  out.clear();
  for (std::size_t i = 0; i < num_candidates(); ++i) out.push_back(entries_[i].number);
}

void RequestQueue::set_prediction(RequestNumber number, std::uint32_t tokens) {
  for (Entry& entry : entries_)
    if (entry.number == number) entry.prediction = tokens;
}

std::size_t RequestQueue::choose() const {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(num_candidates());
  const auto best = std::max_element(entries_.begin(), end, [](const Entry& a, const Entry& b) {
    return a.prediction < b.prediction;  // the first of equal ones: the oldest
  });
  return static_cast<std::size_t>(best - entries_.begin());
}

std::optional<RequestNumber> RequestQueue::peek() const {
  if (empty()) return std::nullopt;
  return entries_[choose()].number;
}

std::optional<RequestNumber> RequestQueue::pick() {
  if (empty()) return std::nullopt;
  const std::size_t chosen = choose();
  const RequestNumber number = entries_[chosen].number;
  for (std::size_t i = 0; i < chosen; ++i) ++entries_[i].overtaken;
  erase(chosen);
  return number;
}

void RequestQueue::expire(std::uint64_t now_ms, std::vector<RequestNumber>& out) {
  out.clear();
  for (std::size_t i = 0; i < entries_.size();) {
    const auto& deadline = entries_[i].demand.deadline_ms;
    if (deadline && *deadline <= now_ms) {
      out.push_back(entries_[i].number);
      erase(i);
    } else {
      ++i;
    }
  }
}

std::optional<std::uint64_t> RequestQueue::next_deadline_ms() const {
  std::optional<std::uint64_t> earliest;
  for (const Entry& entry : entries_) {
    const auto& deadline = entry.demand.deadline_ms;
    if (deadline && (!earliest || *deadline < *earliest)) earliest = deadline;
  }
  return earliest;
}

}  // namespace troupe::scheduler
