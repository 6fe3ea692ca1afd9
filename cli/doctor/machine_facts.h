// What `troupe doctor` looks up of the machine, and what it makes of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "engine/machine/machine.h"
#include "engine/machine/machine_probe.h"

namespace troupe::cli {

// How the frequency of a CPU is chosen; what a file does not say is empty.
struct FrequencyRule {
  std::string driver;      // "intel_pstate"
  std::string governor;    // "powersave"
  std::string preference;  // "balance_performance", of drivers in which the CPU decides
  friend bool operator==(const FrequencyRule&, const FrequencyRule&) = default;
};

struct MachineFacts {
  engine::MachineIdentity identity;
  std::uint32_t num_cpus = 0;           // that affinity and cpusets allow
  std::optional<double> cgroup_cpus{};  // a quota
  std::uint32_t num_threads = 0;        // that serve would use
  std::string kernels{};                // the variant that runs here: "avx512vnni"
  std::string amx_refusal{};            // kernels::amx_refusal()
  std::uint32_t num_nodes = 0;          // of NUMA; 0: not known
  std::vector<FrequencyRule> rules{};   // those that some CPU has, each once
  std::string huge_pages{};             // "always", "madvise", "never"; empty: the kernel has none

  std::uint64_t total_memory = 0, available_memory = 0;  // bytes; the latter within the cgroup's limits
  bool is_limited = false;                               // by a cgroup, rather than by what the machine has
  std::uint64_t total_swap = 0, free_swap = 0;           // bytes
  int overcommit = 0;                                    // vm.overcommit_memory
  double load_average = 0;                               // of one minute
  double stolen_percent = 0;                             // of the CPUs' time since boot
  std::uint64_t file_descriptors = 0;                    // the hard limit: what a server can raise its own to
  std::optional<engine::MachineProbe> probe{};
};

// root: "/" except in tests. The probe is the one that is kept; nothing is measured.
[[nodiscard]] MachineFacts machine_facts(const std::filesystem::path& root = "/");

// What is fine is said, too. `is_serving`: a server runs here, so that load is expected, and nothing was measured.
[[nodiscard]] std::vector<Finding> judge_machine(const MachineFacts& facts, bool is_serving);

}  // namespace troupe::cli
