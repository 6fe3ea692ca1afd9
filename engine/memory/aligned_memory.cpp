#include "engine/memory/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "config/assert.h"

namespace troupe::engine {
namespace {
constexpr std::size_t kPage = 4096;
}

AlignedMemory AlignedMemory::allocate(std::shared_ptr<MemoryPolicy> policy, MemoryKind kind, std::size_t bytes) {
  AlignedMemory memory;
  if (bytes == 0) return memory;
  TROUPE_ASSERT(policy != nullptr);
  memory.data_ = policy->allocate(kind, bytes);
  if (!memory.data_) return memory;
  TROUPE_ASSERT(reinterpret_cast<std::uintptr_t>(memory.data_) % kPage == 0);
  memory.size_ = bytes;
  memory.policy_ = std::move(policy);
  memory.kind_ = kind;
  return memory;
}

std::size_t AlignedMemory::resident_bytes() const {
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
  if (data_) policy_->release(kind_, data_, size_);
}

}  // namespace troupe::engine
