#include "engine/memory/process_memory.h"

#include <malloc.h>

#include <fstream>
#include <sstream>

namespace troupe::engine {

std::map<std::string, std::uint64_t> read_sizes(const std::filesystem::path& file) {
  std::map<std::string, std::uint64_t> sizes;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t kib = 0;
    if (words >> key >> kib && key.ends_with(':')) sizes[key.substr(0, key.size() - 1)] = kib << 10;
  }
  return sizes;
}

ProcessMemory process_memory() {
  auto status = read_sizes("/proc/self/status");
  const struct mallinfo2 heap = ::mallinfo2();
  return {.resident = status["VmRSS"],
          .peak_resident = status["VmHWM"],
          .file_backed = status["RssFile"] + status["RssShmem"],
          .heap_used = heap.uordblks + heap.hblkhd,
          .heap_free = heap.fordblks};
}

}  // namespace troupe::engine
