// Which CPUs compute and which are left for everything else.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe::actors {

struct CpuPlan {
  // Where the threads of the compute team go, thread by thread. Empty: nothing is bound.
  std::vector<int> compute;
  // Where actors, timers and the socket thread go. Empty: nothing is bound.
  std::vector<int> rest;
};

// One CPU as the plan sees it.
struct CpuPlace {
  int cpu;             // the operating system's number
  std::uint32_t node;  // NUMA node
  std::uint32_t core;  // physical core, machine-wide
};

// Takes whole cores before second hyper-threads, and fills one NUMA node before the next. Where the team
// takes every CPU there is no rest to keep the actors on: nothing is bound then, and the operating system
// balances. Plain; `places` in any order.
[[nodiscard]] CpuPlan plan_cpus(std::vector<CpuPlace> places, std::uint32_t num_threads);

// The CPUs this process may run on, as hwloc sees them; empty where it cannot tell.
[[nodiscard]] std::vector<CpuPlace> allowed_places();

}  // namespace troupe::actors
