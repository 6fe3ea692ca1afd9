#include "engine/memory/process_memory.h"

#include <malloc.h>

#include <fstream>
#include <sstream>
#include <string>

namespace troupe::engine {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    words >> name >> kib;
    if (name == "VmRSS:") memory.resident = kib << 10;
    if (name == "VmHWM:") memory.peak_resident = kib << 10;
    if (name == "RssFile:" || name == "RssShmem:") memory.file_backed += kib << 10;
  }
  const struct mallinfo2 heap = ::mallinfo2();
  memory.heap_used = heap.uordblks + heap.hblkhd;
  memory.heap_free = heap.fordblks;
  return memory;
}

}  // namespace troupe::engine
