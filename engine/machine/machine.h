// What the operating system says of this machine, and lets this process have: CPUs and memory, cgroup limits included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::engine {

// The smallest limit of this process's control group and all groups above it. Versions 1 and 2.
//   root  "/" but in tests; below it lie proc/self/cgroup and sys/fs/cgroup
[[nodiscard]] std::optional<double> cgroup_cpus(const std::filesystem::path& root = "/");
[[nodiscard]] std::optional<std::uint64_t> cgroup_memory(const std::filesystem::path& root = "/");

// The smaller of the machine's available memory and the cgroup limit, in bytes.
[[nodiscard]] std::uint64_t available_memory(const std::filesystem::path& root = "/");

// What tells one kind of machine from another, as far as speed goes. Two with the same identity may still differ in
// their memory and their neighbours.
struct MachineIdentity {
  std::string cpu;       // "Intel(R) Xeon(R) Processor", or "unknown CPU"
  std::string revision;  // "family 6 model 207 stepping 2 microcode 0x1"; what of it is not known is left out
  std::string cpus;      // those that this process may use: "0-1,4"
  friend bool operator==(const MachineIdentity&, const MachineIdentity&) = default;
};
[[nodiscard]] MachineIdentity machine_identity(const std::filesystem::path& root = "/");

// "0-1,4". `cpus` ascending.
[[nodiscard]] std::string format_cpus(std::span<const int> cpus);

// Clock ticks of some CPUs since the machine began, all together.
struct CpuTicks {
  std::uint64_t total = 0;
  std::uint64_t stolen = 0;  // the hypervisor gave them to somebody else
};
// Zero where /proc/stat does not say.
[[nodiscard]] CpuTicks cpu_ticks(std::span<const int> cpus, const std::filesystem::path& root = "/");

}  // namespace troupe::engine
