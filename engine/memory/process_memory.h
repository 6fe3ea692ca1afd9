// What this process has in memory, as the kernel and the allocator tell it.
#pragma once

#include <cstdint>

namespace troupe::engine {

struct ProcessMemory {
  std::uint64_t resident = 0;       // VmRSS
  std::uint64_t peak_resident = 0;  // VmHWM: the most it ever was
  std::uint64_t file_backed = 0;    // of `resident`: code, constants and libraries, and mapped files
  std::uint64_t heap_used = 0;      // given out by the allocator, whether written or not
  std::uint64_t heap_free = 0;      // kept by the allocator to give out again, whether written or not
};

// Microseconds; any thread. What cannot be read is 0: all of it outside Linux, the heap under sanitizers.
[[nodiscard]] ProcessMemory process_memory();

}  // namespace troupe::engine
