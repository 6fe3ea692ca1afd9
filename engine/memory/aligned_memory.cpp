#include "engine/memory/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "config/assert.h"

namespace troupe::engine {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uintptr_t kHugePage = 2u << 20;

class SystemMemory final : public MemoryPolicy {
 public:
  std::byte* allocate(MemoryKind, std::size_t bytes) noexcept override {
    const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
    // NORESERVE: KV blocks may never be touched, so the budget must not count as committed memory.
    void* mapped =
        ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* base = static_cast<std::byte*>(mapped);
    if (slack == 0) return base;
    // Unmap the slack before the aligned start and after the end.
    const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(base) % kHugePage) % kHugePage;
    if (head != 0) ::munmap(base, head);
    const std::size_t used = (bytes + kPage - 1) / kPage * kPage;
    if (head + used < bytes + slack) ::munmap(base + head + used, bytes + slack - head - used);
    base += head;
    ::madvise(base, bytes, MADV_HUGEPAGE);
    return base;
  }
  void release(MemoryKind, std::byte* data, std::size_t bytes) noexcept override { ::munmap(data, bytes); }
};

}  // namespace

const std::shared_ptr<MemoryPolicy>& system_memory() noexcept {
  static const std::shared_ptr<MemoryPolicy> policy = std::make_shared<SystemMemory>();
  return policy;
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
