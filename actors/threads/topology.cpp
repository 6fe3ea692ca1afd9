#include "actors/threads/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "engine/compute/team.h"

namespace troupe::actors {

namespace {
constexpr std::size_t kTopologyBytes = 4 << 20;
}  // namespace

CpuPlan plan_cpus(std::vector<LogicalCpu> cpus, std::uint32_t num_threads) {
  if (cpus.size() <= num_threads) return {};
  std::sort(cpus.begin(), cpus.end(), [](const LogicalCpu& a, const LogicalCpu& b) { return a.number < b.number; });
  std::map<std::uint32_t, std::uint32_t> seen_of_core;
  std::vector<std::tuple<std::uint32_t, std::uint32_t, int>> order;  // node, n-th thread of its core, cpu
  order.reserve(cpus.size());
  for (const LogicalCpu& cpu : cpus) order.emplace_back(cpu.node, seen_of_core[cpu.core]++, cpu.number);
  std::sort(order.begin(), order.end());

  CpuPlan plan;
  for (const auto& [node, sibling, cpu] : order) {
    (plan.compute.size() < num_threads ? plan.compute : plan.rest).push_back(cpu);
  }
  return plan;
}

std::vector<LogicalCpu> usable_cpus() {
  // hwloc does not look at what its allocations return and crashes where there is no memory: this makes sure of more
  // than it takes, or throws.
  operator delete(operator new(kTopologyBytes));
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return {};
  std::vector<LogicalCpu> cpus;
  if (hwloc_topology_load(topology) == 0) {
    const std::vector<int> allowed = engine::allowed_cpus();
    for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
      const int cpu = static_cast<int>(pu->os_index);
      if (!std::binary_search(allowed.begin(), allowed.end(), cpu)) continue;
      const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
      const int node = hwloc_bitmap_first(pu->nodeset);
      cpus.push_back({.number = cpu,
                      .node = node < 0 ? 0 : static_cast<std::uint32_t>(node),
                      .core = core != nullptr ? core->logical_index : pu->logical_index});
    }
  }
  hwloc_topology_destroy(topology);
  return cpus;
}

}  // namespace troupe::actors
