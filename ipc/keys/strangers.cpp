#include "ipc/keys/strangers.h"

#include <algorithm>
#include <unordered_map>

namespace troupe::ipc {
namespace {

// The indices of those for which `may_go` holds, the longest idle first.
template <class MayGo>
std::vector<std::size_t> longest_idle(const std::vector<Stranger>& strangers, MayGo may_go) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < strangers.size(); ++i)
    if (strangers[i].idle_since && may_go(strangers[i])) indices.push_back(i);
  std::ranges::stable_sort(indices, {}, [&](std::size_t i) { return *strangers[i].idle_since; });
  return indices;
}

}  // namespace

std::optional<std::size_t> stranger_beyond_part(const std::vector<Stranger>& strangers, std::size_t limit,
                                                std::chrono::steady_clock::time_point now) {
  const auto stays = [&](const Stranger& each) { return now - *each.idle_since >= kStrangerGrace; };
  std::unordered_map<std::string_view, std::size_t> stay;
  std::size_t total = 0, most = 0;
  for (const Stranger& each : strangers) {
    if (!each.idle_since || !stays(each)) continue;
    ++total;
    most = std::max(most, ++stay[each.peer]);
  }
  if (total <= strangers_part(limit) && most <= strangers_part_of_one(limit)) return std::nullopt;
  return longest_idle(strangers, [&](const Stranger& each) { return stays(each) && stay[each.peer] == most; }).front();
}

std::optional<std::size_t> stranger_to_make_room(const std::vector<Stranger>& strangers, std::string_view newcomer,
                                                 const std::function<bool(std::size_t)>& has_unread) {
  std::unordered_map<std::string_view, std::size_t> have;
  for (const Stranger& each : strangers) ++have[each.peer];
  const std::size_t own = have[newcomer];
  std::size_t most = 0;
  for (const Stranger& each : strangers)
    if (each.idle_since && (have[each.peer] > own || each.peer == newcomer)) most = std::max(most, have[each.peer]);
  const auto going = longest_idle(strangers, [&](const Stranger& each) {
    return have[each.peer] == most && (most > own || each.peer == newcomer);
  });
  if (going.empty()) return std::nullopt;
  const auto quiet = std::ranges::find_if_not(going, has_unread);
  return quiet == going.end() ? going.front() : *quiet;
}

}  // namespace troupe::ipc
