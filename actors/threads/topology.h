// Which CPUs the compute team uses, and which are left for actors, timers and sockets.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe::actors {

struct CpuPlan {
  // compute[i]: the CPU of thread i of the compute team. Empty: no thread is bound.
  std::vector<int> compute;
  // The CPUs for actors, timers and the socket thread. Empty: no thread is bound.
  std::vector<int> rest;
};

// One logical CPU (hardware thread).
struct LogicalCpu {
  int number;          // the operating system's number
  std::uint32_t node;  // NUMA node
  std::uint32_t core;  // physical core, machine-wide
};

// Fills one NUMA node before the next, and in a node takes one hardware thread of each core before second ones. If the
// team needs every CPU, none is left for the actors: both lists are empty, nothing is bound, and the operating system
// balances. `cpus` may be in any order.
[[nodiscard]] CpuPlan plan_cpus(std::vector<LogicalCpu> cpus, std::uint32_t num_threads);

// The CPUs this process may run on, from hwloc; empty if it fails.
[[nodiscard]] std::vector<LogicalCpu> usable_cpus();

}  // namespace troupe::actors
