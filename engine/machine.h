// What the operating system lets this process have: CPUs and memory, cgroup limits included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace troupe::engine {

// The smallest limit of this process's control group and all groups above it. Versions 1 and 2.
//   root  "/" but in tests; below it lie proc/self/cgroup and sys/fs/cgroup
[[nodiscard]] std::optional<double> cgroup_cpus(const std::filesystem::path& root = "/");
[[nodiscard]] std::optional<std::uint64_t> cgroup_memory(const std::filesystem::path& root = "/");

// The smaller of the machine's available memory and the cgroup limit, in bytes.
[[nodiscard]] std::uint64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace troupe::engine
