#include "engine/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>

namespace troupe::engine {
namespace {
constexpr std::uintptr_t kHugePage = 2u << 20;
}

AlignedMemory AlignedMemory::allocate(std::size_t bytes) {
  AlignedMemory memory;
  if (bytes == 0) return memory;
  const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
  // NORESERVE: KV blocks may never be touched; the budget is counted, not committed.
  void* mapped =
      ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return memory;
  auto* base = static_cast<std::byte*>(mapped);
  if (slack != 0) {
    // Cut off what lies before the boundary and after the end.
    const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(base) % kHugePage) % kHugePage;
    if (head != 0) ::munmap(base, head);
    const std::size_t used = (bytes + 4095) / 4096 * 4096;
    if (head + used < bytes + slack) ::munmap(base + head + used, bytes + slack - head - used);
    base += head;
    ::madvise(base, bytes, MADV_HUGEPAGE);
  }
  memory.data_ = base;
  memory.size_ = bytes;
  return memory;
}

std::size_t AlignedMemory::resident_bytes() const {
  constexpr std::size_t kPage = 4096;
  std::array<unsigned char, 16384> in_core;  // 64 MiB at a time
  std::size_t pages = 0;
  for (std::size_t begin = 0; begin < size_; begin += in_core.size() * kPage) {
    const std::size_t bytes = std::min(size_ - begin, in_core.size() * kPage);
    if (::mincore(data_ + begin, bytes, in_core.data()) != 0) return size_;
    const auto end = in_core.begin() + static_cast<std::ptrdiff_t>((bytes + kPage - 1) / kPage);
    pages += static_cast<std::size_t>(std::count_if(in_core.begin(), end, [](unsigned char c) { return c & 1; }));
  }
  return pages * kPage;
}

AlignedMemory::~AlignedMemory() {
  if (data_) ::munmap(data_, size_);
}

}  // namespace troupe::engine
