#include "ipc/keys/strangers.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace troupe::ipc {
namespace {

// The index of the first in the order of `rank`, of those for which it is not nullopt.
template <class Rank>
std::optional<std::size_t> first_by(const std::vector<Stranger>& strangers, Rank rank) {
  std::optional<std::size_t> first;
  decltype(rank(strangers.front())) best;
  for (std::size_t i = 0; i < strangers.size(); ++i) {
    const auto its = rank(strangers[i]);
    if (!its || (best && *best <= *its)) continue;
    best = its;
    first = i;
  }
  return first;
}

}  // namespace

std::optional<std::size_t> stranger_beyond_part(const std::vector<Stranger>& strangers, std::size_t limit,
                                                std::chrono::steady_clock::time_point now) {
  const auto stays = [&](const Stranger& each) { return each.idle_since && now - *each.idle_since >= kStrangerGrace; };
  std::unordered_map<std::string_view, long> stay;
  long total = 0, most = 0;
  for (const Stranger& each : strangers) {
    if (!stays(each)) continue;
    ++total;
    most = std::max(most, ++stay[each.peer]);
  }
  if (total <= static_cast<long>(strangers_part(limit)) && most <= static_cast<long>(strangers_part_of_one(limit)))
    return std::nullopt;
  using Rank = std::chrono::steady_clock::time_point;
  return first_by(strangers, [&](const Stranger& each) -> std::optional<Rank> {
    if (!stays(each) || stay[each.peer] < most) return std::nullopt;
    return each.idle_since;
  });
}

std::optional<std::size_t> stranger_to_make_room(const std::vector<Stranger>& strangers, std::string_view newcomer) {
  std::unordered_map<std::string_view, long> have;
  for (const Stranger& each : strangers) ++have[each.peer];
  const long own = have[newcomer];
  using Rank = std::tuple<long, bool, std::chrono::steady_clock::time_point>;
  return first_by(strangers, [&](const Stranger& each) -> std::optional<Rank> {
    const long its = have[each.peer];
    if (!each.idle_since || (its <= own && each.peer != newcomer)) return std::nullopt;
    return Rank(-its, each.has_unread, *each.idle_since);
  });
}

}  // namespace troupe::ipc
