#include "ipc/keys/check_line.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::ipc {
namespace {

bool have_one_id(const KeyCheck& a, const KeyCheck& b) { return !a.has_id || a.id == b.id; }
bool are_one_pair(const KeyCheck& a, const KeyCheck& b) { return have_one_id(a, b) && a.peer == b.peer; }

}  // namespace

std::optional<KeyCheck> CheckLine::push(KeyCheck check) {
  const bool has_id = check.has_id;
  std::vector<Waiting>& waiting = lines_[has_id].waiting;
  std::uint64_t round = lines_[has_id].round + 1;
  for (const Waiting& each : waiting)
    if (are_one_pair(each.check, check)) round = std::max(round, each.round + 1);
  waiting.push_back({std::move(check), round});
  if (waiting.size() <= (has_id ? kMaxWaitingKeys : kMaxWaitingGuesses)) return std::nullopt;

  const auto held = [&](const Waiting& by) {
    const auto count = [&](auto is_like) {
      return std::ranges::count_if(waiting, [&](const Waiting& each) { return is_like(each.check, by.check); });
    };
    return std::pair(count(have_one_id), count(are_one_pair));
  };
  auto loser = waiting.begin();
  auto most = held(*loser);
  for (auto each = std::next(loser); each != waiting.end(); ++each) {
    const auto its = held(*each);
    if (its < most) continue;
    most = its;
    loser = each;
  }
  KeyCheck lost = std::move(loser->check);
  waiting.erase(loser);
  return lost;
}

std::optional<KeyCheck> CheckLine::pop() {
  if (empty()) return std::nullopt;
  last_had_id_ = lines_[!last_had_id_].waiting.empty() ? last_had_id_ : !last_had_id_;
  auto& [waiting, last_round] = lines_[last_had_id_];
  const auto next = std::ranges::min_element(waiting, {}, &Waiting::round);  // the first of them
  last_round = std::max(last_round, next->round);
  KeyCheck check = std::move(next->check);
  waiting.erase(next);
  return check;
}

}  // namespace troupe::ipc
