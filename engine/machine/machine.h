// CPUs and memory that the operating system reports and allows this process to use, with cgroup limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::engine {

// The smallest limit of this process's control group and all groups above it. Versions 1 and 2.
//   root  "/" except in tests; contains proc/self/cgroup and sys/fs/cgroup
[[nodiscard]] std::optional<double> cgroup_cpus(const std::filesystem::path& root = "/");
// What others in these groups, this process included, leave of the memory: the least of all limits (memory.max and
// memory.high) less what is used, without the page cache, which the kernel gives back under pressure.
[[nodiscard]] std::optional<std::uint64_t> cgroup_memory_left(const std::filesystem::path& root = "/");

// The smaller of the machine's available memory and what is left in the cgroups, in bytes.
[[nodiscard]] std::uint64_t available_memory(const std::filesystem::path& root = "/");

// Identifies a kind of machine with respect to speed. Two machines with the same identity may still differ in their
// memory and their other load.
struct MachineIdentity {
  std::string cpu;       // "Intel(R) Xeon(R) Processor", or "unknown CPU"
  std::string revision;  // "family 6 model 207 stepping 2 microcode 0x1", without unknown parts
  std::string cpus;      // CPUs that this process may use: "0-1,4"
  friend bool operator==(const MachineIdentity&, const MachineIdentity&) = default;
};
[[nodiscard]] MachineIdentity machine_identity(const std::filesystem::path& root = "/");

// "0-1,4". `cpus` ascending.
[[nodiscard]] std::string format_cpus(std::span<const int> cpus);

// Clock ticks of some CPUs since boot, added up.
struct CpuTicks {
  std::uint64_t total = 0;
  std::uint64_t stolen = 0;  // the hypervisor gave them to another machine
  // The stolen share of the ticks since `before`; 0 without data.
  [[nodiscard]] double stolen_percent_since(const CpuTicks& before) const;
};
// Zero if /proc/stat has no data.
[[nodiscard]] CpuTicks cpu_ticks(std::span<const int> cpus, const std::filesystem::path& root = "/");

}  // namespace troupe::engine
