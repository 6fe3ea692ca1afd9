// Groups of rules that need one another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::engine::constraints {

// The strongly connected components of what is reached from `root`, among `count` vertices, each behind those that it
// leads to (R. Tarjan, "Depth-first search and linear graph algorithms", 1972). targets_of(vertex) returns a list of
// vertices. Recurses nowhere. O(vertices + edges)
template <class TargetsOf>
[[nodiscard]] std::vector<std::vector<std::size_t>> strong_components(std::size_t count, std::size_t root,
                                                                      TargetsOf targets_of) {
  constexpr std::size_t kUnseen = SIZE_MAX;
  struct Visit {
    std::size_t vertex;
    std::vector<std::size_t> targets;
    std::size_t next = 0;
  };
  std::vector<std::vector<std::size_t>> components;
  std::vector<std::size_t> number(count, kUnseen), lowest(count, kUnseen), open;
  std::vector<bool> is_open(count);
  std::vector<Visit> visits;
  std::size_t next_number = 0;
  const auto enter = [&](std::size_t vertex) {
    number[vertex] = lowest[vertex] = next_number++;
    open.push_back(vertex);
    is_open[vertex] = true;
    visits.push_back({vertex, targets_of(vertex)});
  };
  enter(root);
  while (!visits.empty()) {
    Visit& visit = visits.back();
    if (visit.next < visit.targets.size()) {
      const std::size_t target = visit.targets[visit.next++];
      if (number[target] == kUnseen)
        enter(target);
      else if (is_open[target])
        lowest[visit.vertex] = std::min(lowest[visit.vertex], number[target]);
      continue;
    }
    const std::size_t vertex = visit.vertex;
    visits.pop_back();
    if (!visits.empty()) lowest[visits.back().vertex] = std::min(lowest[visits.back().vertex], lowest[vertex]);
    if (lowest[vertex] != number[vertex]) continue;
    components.emplace_back();
    do {
      components.back().push_back(open.back());
      is_open[open.back()] = false;
      open.pop_back();
    } while (components.back().back() != vertex);
  }
  return components;
}

}  // namespace troupe::engine::constraints
