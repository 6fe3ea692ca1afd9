// The memory use of this process, as reported by the kernel and the allocator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace troupe::engine {

struct ProcessMemory {
  std::uint64_t resident = 0;       // VmRSS
  std::uint64_t peak_resident = 0;  // VmHWM: the most it ever was
  std::uint64_t file_backed = 0;    // of `resident`: code, constants and libraries, and mapped files
  std::uint64_t heap_used = 0;      // allocated from the allocator, whether written or not
  std::uint64_t heap_free = 0;      // free memory kept by the allocator, whether written or not
};

// The bytes that lines "KEY: N kB" of a file of /proc name, by key; empty if there is no such file.
[[nodiscard]] std::map<std::string, std::uint64_t> read_sizes(const std::filesystem::path& file);

// Takes microseconds; any thread. Values that cannot be read are 0: all of them outside Linux, the heap under
// sanitizers.
[[nodiscard]] ProcessMemory process_memory();

}  // namespace troupe::engine
